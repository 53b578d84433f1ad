import fc from 'fast-check'

import type { Operation, Parameter, Schema } from './document.ts'
import type { FuzzRequest, Known } from './requests.ts'
import { encode, toJson, valid } from './values.ts'

/** A request with one value that its parameter does not take. */
export interface OddRequest {
  readonly operation: Operation
  /** The parameter that holds the value. */
  readonly name: string
  readonly request: FuzzRequest
  /** The value is outside what the schema of the parameter accepts, so that the answer names it. */
  readonly isRefused: boolean
}

/** Numbers that `Number` reads, or nearly, and no column, page or count can hold. */
const NUMBERS: readonly string[] = [
  'Infinity',
  '-Infinity',
  '1e999',
  '-1e999',
  'NaN',
  '1e308',
  '-1e308',
  '9007199254740993',
  '-9007199254740993',
  '9223372036854775808',
  '2147483648',
  '-1',
  '0',
  '-0',
  '1e-400',
  '0x10',
  '0b1',
  '1_000',
  ' 5 ',
  '5.0',
  '5.5',
  '',
  '+5',
  '5,0',
  '٥',
  '1'.repeat(400),
]

/** Moments, cursors and ids that are none. */
const WORDS: readonly string[] = [
  '+275760-09-13',
  '0000-00-00T00:00:00Z',
  '2026-02-30T00:00:00Z',
  '9999-12-31T23:59:60Z',
  '0',
  '-1',
  'Infinity',
  '1e999',
  '9223372036854775808',
  '00000000-0000-0000-0000-000000000000',
  'usage_W10',
  'a'.repeat(5000),
  `usage_${Buffer.from('["not a day","x","y"]').toString('base64url')}`,
]

// The user server describes them as texts, since empty ones mean the defaults.
const PAGE_NUMBERS: Readonly<Record<string, Schema>> = {
  page: { type: ['integer', 'null'], minimum: 0, maximum: 1_000_000 },
  per_page: { type: ['integer', 'null'], minimum: 0, maximum: 1000 },
}

/** Every numeric parameter with each of the numbers, every other one with each of the words. */
export function oddRequests(operations: readonly Operation[], known: Known): OddRequest[] {
  return operations.flatMap((operation) => [
    ...inQueries(operation, known),
    ...inPaths(operation, known),
    ...inBodies(operation, known),
  ])
}

function inQueries(operation: Operation, known: Known): OddRequest[] {
  const { parameters, method } = operation
  const queries = parameters.filter((parameter) => parameter.in === 'query')
  return queries.flatMap(({ name, schema: described }) => {
    const schema = PAGE_NUMBERS[name] ?? described
    const texts = isNumeric(schema) ? NUMBERS : WORDS
    return texts.map((text) => {
      const target = `${pathOf(operation, known)}?${name}=${encode(text)}`
      const request = { claim: 'own' as const, method, headers: [], target, body: undefined }
      return { operation, name, request, isRefused: isNumeric(schema) && !accepts(schema, text) }
    })
  })
}

function inPaths(operation: Operation, known: Known): OddRequest[] {
  const paths = operation.parameters.filter((parameter) => parameter.in === 'path')
  return paths.flatMap(({ name }) =>
    WORDS.map((text) => {
      const target = pathOf(operation, known, { [name]: text })
      const request = { claim: 'own' as const, headers: [], target, body: undefined }
      return {
        operation,
        name,
        request: { ...request, method: operation.method },
        isRefused: false,
      }
    }),
  )
}

function inBodies(operation: Operation, known: Known): OddRequest[] {
  const { body, method } = operation
  const fields = Object.entries(body?.schema.properties ?? {})
  return fields.flatMap(([name, schema]) => {
    if (body === undefined || !isNumeric(schema)) return []
    // An accepted request would run a model.
    const isForm = body.type === 'form'
    // An empty text of a form counts as absent.
    const refused = NUMBERS.filter((text) => !accepts(schema, text) && !(isForm && text === ''))
    const written = isForm ? refused : refused.filter(isJson)
    return written.map((text) => {
      const content = isForm ? formWith(name, text) : jsonWith(name, text)
      return {
        operation,
        name,
        isRefused: isForm,
        request: {
          claim: 'own' as const,
          method,
          target: pathOf(operation, known),
          headers: [['content-type', content.type]] as const,
          body: content.text,
        },
      }
    })
  })

  function jsonWith(name: string, text: string) {
    const [plain] = fc.sample(valid(body?.schema ?? {}, known.hints), { seed: 1, numRuns: 1 })
    const rest = toJson({ ...(plain as object), [name]: undefined }).slice(1)
    const tail = rest === '}' ? rest : `,${rest}`
    const json = `{${JSON.stringify(name)}:${text}${tail}`
    return { type: 'application/json', text: Buffer.from(json).toString('latin1') }
  }

  function formWith(name: string, text: string) {
    const others = Object.keys(body?.schema.properties ?? {}).filter((key) => key !== name)
    const files = others.flatMap((key) => {
      const bytes = known.files[key]?.at(-1)
      return bytes === undefined ? [] : [partOf(`name="${key}"; filename="a"`, bytes)]
    })
    const needed = ['model', 'prompt', 'purpose', 'expires_after[anchor]']
    const texts = needed.filter((key) => others.includes(key))
    const textOf = (key: string) => String(body?.schema.properties?.[key]?.enum?.at(-1) ?? 'speech')
    const parts = [
      ...texts.map((key) => partOf(`name="${key}"`, textOf(key))),
      partOf(`name="${name}"`, Buffer.from(text).toString('latin1')),
      ...files,
    ]
    return { type: 'multipart/form-data; boundary=b', text: `${parts.join('')}--b--\r\n` }
  }
}

const partOf = (disposition: string, content: string): string =>
  `--b\r\ncontent-disposition: form-data; ${disposition}\r\n\r\n${content}\r\n`

function pathOf(
  { path, parameters }: Operation,
  known: Known,
  values: Readonly<Record<string, string>> = {},
): string {
  return parameters
    .filter((parameter: Parameter) => parameter.in === 'path')
    .reduce((filled, { name }) => {
      const [id = 'none'] = known.ids[`${path} ${name}`] ?? known.ids[name] ?? []
      return filled.replace(`{${name}}`, () => encode(values[name] ?? id))
    }, path)
}

const isJson = (text: string): boolean => /^-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?$/i.test(text)

function typesOf({ type = [], anyOf = [] }: Schema): readonly string[] {
  return [type, ...anyOf.map(typesOf)].flat()
}

function isNumeric(schema: Schema): boolean {
  const types = typesOf(schema)
  return (types.includes('integer') || types.includes('number')) && !types.includes('string')
}

/** Whether a schema takes a number in decimal notation; an empty text means null. */
function accepts(schema: Schema, text: string): boolean {
  const types = typesOf(schema)
  if (text === '') return types.includes('null')
  const value = /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : Number.NaN
  if (!Number.isFinite(value) || (types.includes('integer') && !Number.isInteger(value)))
    return false
  const { minimum = Number.MIN_SAFE_INTEGER, maximum = Number.MAX_SAFE_INTEGER } = schema
  return value >= minimum && value <= maximum
}
