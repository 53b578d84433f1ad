import type { Operation, Parameter, Schema } from './document.ts'

/** A request that makes one field of an operation large. */
export interface LargeRequest {
  /** The field, as a path, and how it is made large. */
  readonly name: string
  readonly method: string
  readonly path: string
  readonly type?: string
  /** Writes the body, megabytes that most requests of a draw never need. */
  readonly writeBody?: () => string
}

/** How one field is made large, and what writes that body. */
type LargeBody = readonly [name: string, writeBody: () => string]

const LEVELS_MAX = 5
const BOUNDARY = 'b0undary'
// More of a URL is refused before a route sees it.
const URL_CHARACTERS = 7000
// More members exceed every limit, and take seconds to write.
const MEMBERS_MAX = 60_000

/** Values by the name of their field, so that a request passes the checks in front of it. */
const HINTS: Readonly<Record<string, unknown>> = {
  model: 'chat',
  messages: [{ role: 'user', content: 'Hi' }],
  max_tokens: 1,
  max_output_tokens: 16,
  max_completion_tokens: 1,
  role: 'user',
  content: 'Hi',
  email: 'a@example.test',
  password: 'correct horse battery',
  phone: '+15005550006',
  endpoint: '/v1/embeddings',
  completion_window: '24h',
  purpose: 'batch',
  voice: 'alloy',
  input: 'Hi',
  prompt: 'Hi',
  query: 'Hi',
  documents: ['Hi'],
  steps: 1,
  size: '64x64',
  url: 'https://example.test/',
  filename: 'a.jsonl',
  bytes: 10,
  mime_type: 'text/plain',
}
const MODEL_OF: readonly (readonly [RegExp, string])[] = [
  [/embed|rerank|score|pooling|classify/, 'embed'],
  [/images/, 'images'],
  [/audio/, 'speech'],
]

/** Every field of an operation that accepts text or structure, made as large as `size` says. */
export function largeRequests(operation: Operation, size: number): LargeRequest[] {
  const { method, body, parameters } = operation
  const path = filledPath(operation, '00000000-0000-0000-0000-000000000000')
  const texts = parameters.filter((one) => one.in === 'query' || one.in === 'path')
  const inUrl = texts.map((parameter) => ({
    name: `${parameter.name} in the ${parameter.in}`,
    method,
    path: urlWith(operation, parameter),
  }))
  if (body === undefined) return inUrl
  const plain = sampleOf(body.schema, operation.path) as Readonly<Record<string, unknown>>
  const unknown = () => JSON.stringify({ ...plain, ...members(90, 'a'), more: members(size, 1) })
  const bodies: LargeBody[] =
    body.type === 'form'
      ? Object.keys(body.schema.properties ?? {}).map((name) => [name, () => largeForm(name, size)])
      : [
          ...largeBodies(body.schema, plain, size),
          ['unknown fields', unknown],
          ['repeated fields', () => repeated(plain, size)],
        ]
  const type =
    body.type === 'form' ? `multipart/form-data; boundary=${BOUNDARY}` : 'application/json'
  return [...inUrl, ...bodies.map(([name, writeBody]) => ({ name, method, path, type, writeBody }))]
}

function filledPath({ path }: Operation, value: string): string {
  return path.replaceAll(/\{[^}]+\}/g, encodeURIComponent(value))
}

function urlWith(operation: Operation, { name, in: place }: Parameter): string {
  const text = 'a,'.repeat(URL_CHARACTERS / 2)
  if (place === 'path') return operation.path.replaceAll(/\{[^}]+\}/g, text)
  return `${filledPath(operation, 'x')}?${encodeURIComponent(name)}=${text}`
}

/** JSON bodies that differ from `plain` in one field. */
function largeBodies(
  schema: Schema,
  plain: Readonly<Record<string, unknown>>,
  size: number,
): LargeBody[] {
  return fieldsOf(schema, []).flatMap(({ path, type }) =>
    largeValues(type, size).map(
      ([how, makeValue]): LargeBody => [
        `${path.join('.')} ${how}`,
        () => JSON.stringify(withField(plain, path, makeValue())),
      ],
    ),
  )
}

interface Field {
  readonly path: readonly string[]
  readonly type: 'text' | 'list' | 'object'
}

/** The fields below a schema; `#` is each item of a list. */
function fieldsOf(schema: Schema, path: readonly string[]): Field[] {
  if (path.length > LEVELS_MAX) return []
  const options = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])]
  const shapes = (schema.allOf ?? []).flatMap(({ then: shape }) => (shape ? [shape] : []))
  const types = [schema.type ?? []].flat()
  const isAny = types.length === 0 && options.length === 0 && schema.enum === undefined
  const own: Field[] =
    path.length === 0 || 'const' in schema
      ? []
      : [
          ...(types.includes('string') || isAny ? [{ path, type: 'text' } as const] : []),
          ...(types.includes('array') || isAny ? [{ path, type: 'list' } as const] : []),
          ...(types.includes('object') || isAny ? [{ path, type: 'object' } as const] : []),
        ]
  const inner = [
    ...[...options, ...shapes].flatMap((option) => fieldsOf(option, path)),
    ...Object.entries(schema.properties ?? {}).flatMap(([name, one]) =>
      fieldsOf(one, [...path, name]),
    ),
    ...(schema.items === undefined ? [] : fieldsOf(schema.items, [...path, '#'])),
  ]
  const unique = new Map(
    [...own, ...inner].map((one) => [`${one.path.join('.')} ${one.type}`, one]),
  )
  return [...unique.values()]
}

function largeValues(type: Field['type'], size: number): (readonly [string, () => unknown])[] {
  if (type === 'text') {
    return [
      ['of words', () => 'Good morning, fox! '.repeat(size / 19)],
      ['of marks', () => '\u0301'.repeat(size / 2)],
    ]
  }
  if (type === 'object') return [['of members', () => members(size, 'a')]]
  return [
    ['of texts', () => Array(Math.floor(size / 10)).fill('a')],
    ['of objects', () => Array(Math.floor(size / 800)).fill(HINTS)],
  ]
}

const members = (size: number, value: unknown) =>
  Object.fromEntries(
    Array.from({ length: Math.min(size / 20, MEMBERS_MAX) }, (_, at) => [`name_${at}`, value]),
  )

/** A copy with a value at a path; lists and objects on the way are made. */
function withField(target: unknown, path: readonly string[], value: unknown): unknown {
  const [name, ...rest] = path
  if (name === undefined) return value
  if (name === '#') return [withField(Array.isArray(target) ? target[0] : undefined, rest, value)]
  const fields = typeof target === 'object' && target !== null ? target : {}
  return { ...fields, [name]: withField((fields as Record<string, unknown>)[name], rest, value) }
}

/** A small value that fits a schema as far as it is required. */
function sampleOf(schema: Schema, path: string, name = ''): unknown {
  if (name === 'model') return MODEL_OF.find(([paths]) => paths.test(path))?.[1] ?? 'chat'
  if (HINTS[name] !== undefined) return HINTS[name]
  if (schema.const !== undefined) return schema.const
  if (schema.enum !== undefined) return schema.enum[0]
  const option = (schema.anyOf ?? schema.oneOf)?.[0]
  if (option !== undefined && schema.properties === undefined) return sampleOf(option, path, name)
  const [type] = [schema.type ?? 'object'].flat()
  if (type === 'string') return 'a'.repeat(Math.max(schema.minLength ?? 1, 1))
  if (type === 'integer' || type === 'number') return schema.minimum ?? 1
  if (type === 'boolean') return false
  if (type === 'null') return null
  if (type === 'array') return [sampleOf(schema.items ?? {}, path)]
  const { properties = {}, required = [] } = schema
  return Object.fromEntries(
    required.map((key) => [key, sampleOf(properties[key] ?? {}, path, key)]),
  )
}

/** The same names over and over: the last counts, and the others cost nothing. */
function repeated(plain: object, size: number): string {
  const text = JSON.stringify(plain).slice(1, -1)
  const copy = text === '' ? '"a":1' : text
  return `{${Array(Math.ceil(size / copy.length))
    .fill(copy)
    .join()}}`
}

function largeForm(name: string, size: number): string {
  const part = (value: string, more = '') =>
    `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`
  const file = `; filename="${'a/'.repeat(4000)}"`
  return `${part('a', file)}${part('a'.repeat(size))}${part('a').repeat(size / 100)}--${BOUNDARY}--\r\n`
}
