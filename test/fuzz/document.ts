/** A JSON Schema as far as the fuzzer reads one. */
export interface Schema {
  readonly $ref?: string
  readonly type?: string | readonly string[]
  readonly enum?: readonly unknown[]
  readonly const?: unknown
  readonly anyOf?: readonly Schema[]
  readonly oneOf?: readonly Schema[]
  /** Shapes of an object, distinguished by its `type`, where they are conditions. */
  readonly allOf?: readonly { readonly if?: Schema; readonly then?: Schema }[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly items?: Schema
  readonly minItems?: number
  readonly maxItems?: number
  readonly minLength?: number
  readonly maxLength?: number
  readonly minimum?: number
  readonly exclusiveMinimum?: number
  readonly maximum?: number
  readonly pattern?: string
  readonly format?: string
}

/** A parameter of a path, a query or a header. */
export interface Parameter {
  readonly name: string
  readonly in: 'path' | 'query' | 'header' | 'cookie'
  readonly schema: Schema
}

/** The surface that answers, and so the dialect of its errors. */
export type Surface = 'v1' | 'messages' | 'cohere' | 'auth' | 'other'

/** One method of one path, as the document has it. */
export interface Operation {
  readonly method: string
  readonly path: string
  readonly surface: Surface
  readonly parameters: readonly Parameter[]
  readonly body: { readonly type: 'json' | 'form'; readonly schema: Schema } | undefined
  /** Schemas of JSON answers by status. */
  readonly answers: Readonly<Record<string, Schema>>
}

interface DocumentOperation {
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: { readonly content: Readonly<Record<string, { schema: Schema }>> }
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { schema?: Schema }>> }>
  >
}

/** The content of `/openapi.json`. */
export interface Document {
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> }
  readonly paths: Readonly<Record<string, Readonly<Record<string, DocumentOperation>>>>
}

const SURFACES: readonly (readonly [RegExp, Surface])[] = [
  [/^\/v1\/messages(\/|$)/, 'messages'],
  [/^\/(v2\/(rerank|embed)|v1\/embed)$/, 'cohere'],
  [/^\/(v1\/|(embed|embed_sparse|predict|similarity)$)/, 'v1'],
  [/^\/(rerank|score|classify|tokenize|detokenize|version|load|ping)$/, 'v1'],
  [/^\/(healthz|readyz|ping)$/, 'other'],
]

/** Every operation of the document, and the pages of administration that it leaves out. */
export function listOperations({ paths, components }: Document): Operation[] {
  const described = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) =>
      readOperation(method, path, operation, components),
    ),
  )
  return [...described, ...PAGES]
}

/** The name of an operation, as a person asks for one. */
export const nameOf = ({ method, path }: Pick<Operation, 'method' | 'path'>): string =>
  `${method} ${path}`

function readOperation(
  method: string,
  path: string,
  operation: DocumentOperation,
  { schemas }: Document['components'],
): Operation {
  const content = operation.requestBody?.content ?? {}
  const form = content['multipart/form-data']?.schema ?? UNDESCRIBED_FORMS[`${method} ${path}`]
  const json = content['application/json']?.schema
  const answers = Object.entries(operation.responses).flatMap(([status, { content: shown }]) => {
    const schema = shown?.['application/json']?.schema
    if (schema === undefined) return []
    const { $ref = '' } = schema
    return [[status, schemas[$ref.replace('#/components/schemas/', '')] ?? schema] as const]
  })
  return {
    method: method.toUpperCase(),
    path,
    surface: surfaceOf(path),
    parameters: operation.parameters ?? [],
    body: form ? { type: 'form', schema: form } : json && { type: 'json', schema: json },
    answers: Object.fromEntries(answers),
  }
}

function surfaceOf(path: string): Surface {
  return SURFACES.find(([paths]) => paths.test(path))?.[1] ?? 'auth'
}

// Files stream by as they come, so that no schema checks this form.
const UNDESCRIBED_FORMS: Readonly<Record<string, Schema>> = {
  'post /v1/files': {
    type: 'object',
    required: ['purpose', 'file'],
    properties: { purpose: { type: 'string' }, file: { type: 'string', format: 'binary' } },
  },
  'post /v1/uploads/{upload_id}/parts': {
    type: 'object',
    required: ['data'],
    properties: { data: { type: 'string', format: 'binary' } },
  },
}

const SIGN_IN: Schema = {
  type: 'object',
  properties: { token: { type: 'string' }, email: { type: 'string' }, to: { type: 'string' } },
}

// Pages for people are not part of the description of the API.
const PAGES: readonly Operation[] = [
  ['GET', '/admin'],
  ['GET', '/admin/sign-in'],
  ['POST', '/admin/sign-in'],
  ['GET', '/admin/overview.json'],
  ['GET', '/admin/queues'],
  ['GET', '/admin/queues/api/queues'],
  ['PUT', '/admin/queues/api/queues/{queue}/pause'],
  ['GET', '/docs'],
  ['GET', '/openapi.json'],
  ['GET', '/'],
  ['GET', '/playground'],
].map(([method, path]) => ({
  method: method as string,
  path: path as string,
  surface: 'other',
  answers: {},
  parameters: [...(path as string).matchAll(/\{([^}]+)\}/g)].map((found) => ({
    name: found[1] as string,
    in: 'path',
    schema: { type: 'string' },
  })),
  body: method === 'GET' ? undefined : { type: 'json', schema: SIGN_IN },
}))
