import fc, { type Arbitrary } from 'fast-check'

import { hostileText, toJson } from './values.ts'

/** The bytes of well meant files, a character each, by the name of their field. */
export type FormFiles = Readonly<Record<string, readonly string[]>>

const BOUNDARY = 'b0undary'
const FORM = `multipart/form-data; boundary=${BOUNDARY}`
const ODD_TYPES = [
  'multipart/form-data',
  'multipart/form-data; boundary=',
  'multipart/form-data; boundary="',
  `multipart/form-data; boundary=${'x'.repeat(300)}`,
  'multipart/mixed; boundary=b0undary',
  'application/json',
  'text/plain',
  'multipart/form-data; boundary=b0undary; boundary=other',
  'MULTIPART/FORM-DATA; BOUNDARY=b0undary',
  'application/x-www-form-urlencoded',
  '',
]
const ODD_PARTS = [
  `--${BOUNDARY}\r\n\r\nno headers\r\n`,
  `--${BOUNDARY}\r\ncontent-disposition: form-data\r\n\r\nno name\r\n`,
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name=""\r\n\r\nx\r\n`,
  `--${BOUNDARY}\r\ncontent-disposition: attachment; filename=x\r\n\r\nx\r\n`,
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name="__proto__"\r\n\r\nx\r\n`,
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name="a\r\n\r\nx\r\n`,
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name="model"; filename="x"\r\n\r\nx\r\n`,
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name="file"\r\n\r\nno file\r\n`,
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name*=utf-8''%ff; name="a"\r\n\r\nx\r\n`,
  `--${BOUNDARY}\r\ncontent-type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\n--x--\r\n`,
  `--${BOUNDARY}\r\n${'x-a: b\r\n'.repeat(3000)}\r\nx\r\n`,
  `--${BOUNDARY}\n\nbare line feeds\n`,
  `--${BOUNDARY}--\r\n`,
  `--${BOUNDARY}`,
  '\r\n\r\n',
  '\x00\xff',
]
const FILENAMES = ['a.wav', 'a.png', 'a.jsonl', '', '../../etc/passwd', '\u00ff', 'a"b', 'a\\', ' ']

interface Part {
  readonly name: string
  readonly filename: string | undefined
  readonly value: string
}

/** The value as a form, whole or broken; fields that have files are sent as such. */
export function formBody(
  value: Arbitrary<unknown>,
  names: readonly string[],
  files: FormFiles,
): Arbitrary<{ type: string; body: string }> {
  const fileFields = names.filter((name) => files[name] !== undefined)
  const uploads = fileFields.map((name) =>
    fc
      .tuple(fileBytes(files[name] ?? []), fc.constantFrom(...FILENAMES))
      .map(([bytes, filename]): Part => ({ name, filename, value: bytes })),
  )
  const parts = fc
    .tuple(value, fc.tuple(...uploads), fc.boolean())
    .map(([fields, made, isFileFirst]) => {
      const plain = fieldsOf(fields).filter(({ name }) => !fileFields.includes(name))
      return isFileFirst ? [...made, ...plain] : [...plain, ...made]
    })
  const whole = parts.map((list) => list.map(present).join(''))
  const end = `--${BOUNDARY}--\r\n`
  return fc.oneof(
    { weight: 12, arbitrary: whole.map((text) => ({ type: FORM, body: text + end })) },
    {
      weight: 2,
      arbitrary: fc
        .tuple(whole, fc.constantFrom(...ODD_PARTS), fc.boolean())
        .map(([text, odd, isFirst]) => ({
          type: FORM,
          body: isFirst ? odd + text + end : text + odd + end,
        })),
    },
    {
      weight: 2,
      arbitrary: fc
        .tuple(whole, fc.nat(2000))
        .map(([text, at]) => ({ type: FORM, body: text.slice(0, at) })),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(whole, fc.constantFrom(...ODD_TYPES))
        .map(([text, type]) => ({ type, body: text + end })),
    },
    { weight: 1, arbitrary: whole.map((text) => ({ type: FORM, body: text + text + end })) },
  )
}

/** A good file, one with changed bytes, one cut short, or none at all. */
function fileBytes(good: readonly string[]): Arbitrary<string> {
  const whole = fc.constantFrom(...good)
  return fc.oneof(
    { weight: 3, arbitrary: whole },
    { weight: 3, arbitrary: fc.tuple(whole, changes).map(([bytes, list]) => changed(bytes, list)) },
    { weight: 1, arbitrary: fc.tuple(whole, fc.nat(200)).map(([bytes, at]) => bytes.slice(0, at)) },
    { weight: 1, arbitrary: hostileText.map(bytesOf) },
  )
}

const changes = fc.array(fc.tuple(fc.nat(200), fc.nat(255)), { minLength: 1, maxLength: 8 })

function changed(bytes: string, list: readonly (readonly [number, number])[]): string {
  const copy = Buffer.from(bytes, 'latin1')
  for (const [at, byte] of list) if (copy.length > 0) copy[at % copy.length] = byte
  return copy.toString('latin1')
}

function fieldsOf(value: unknown): Part[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, field]) => {
    const values = Array.isArray(field) ? field.slice(0, 50) : [field]
    const key = Array.isArray(field) ? `${name}[]` : name
    return values.map((one) => ({
      name: key,
      filename: undefined,
      value: typeof one === 'string' ? one : toJson(one),
    }))
  })
}

function present({ name, filename, value }: Part): string {
  const file = filename === undefined ? '' : `; filename="${filename}"`
  // Uploads are bytes already.
  const content = filename === undefined ? bytesOf(value) : value
  return `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${bytesOf(name)}"${file}\r\n\r\n${content}\r\n`
}

const bytesOf = (text: string): string => Buffer.from(text, 'utf8').toString('latin1')
