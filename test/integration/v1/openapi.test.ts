import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runInNewContext } from 'node:vm'

import { Ajv2020 } from 'ajv/dist/2020.js'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { type ApiHere, type ServedRoute, startApiHere } from '#test/support/api-here.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'

let api: ApiHere
let dropDatabase: () => Promise<void>
let folder: string

beforeAll(async () => {
  const made = await createDatabase()
  dropDatabase = made.drop
  folder = await mkdtemp(join(tmpdir(), 'millrace-openapi-'))
  api = await startApiHere({
    databaseUrl: made.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: freshPrefix(),
  })
}, 90_000)

afterAll(async () => {
  await api?.stop()
  await dropDatabase?.()
  if (folder !== undefined) await rm(folder, { recursive: true, force: true })
})

/**
 * Ids of models that contain slashes, what is refused by name, and what the API asks itself for.
 */
const HIDDEN = [
  ...['GET /v1/models/*', 'GET /v1/engines/*', 'DELETE /v1/models/*'],
  'POST /v1/fine_tuning/jobs/{job_id}/run',
  'GET /v1/fine_tuning/checkpoints/{checkpoint}/permissions',
  'POST /v1/fine_tuning/checkpoints/{checkpoint}/permissions',
  'DELETE /v1/fine_tuning/checkpoints/{checkpoint}/permissions/{permission}',
]

interface Described {
  readonly responses?: Record<string, { content?: Record<string, { schema?: unknown }> }>
}

describe('the OpenAPI document', () => {
  it('contains schemas that are JSON Schema: requests are checked by the same ones', async () => {
    const document: unknown = await (await fetch(`${api.url}/openapi.json`)).json()
    const schemas = [...schemasOf(document)]
    expect(schemas.length).toBeGreaterThan(300)
    const ajv = new Ajv2020({ strict: false, logger: false })
    for (const schema of schemas) {
      const isValid = ajv.validateSchema(schema)
      expect(isValid, `${ajv.errorsText(ajv.errors)}: ${JSON.stringify(schema)}`).toBe(true)
    }
  })

  it('describes the error body once, and every error by a reference to it', async () => {
    const text = await (await fetch(`${api.url}/openapi.json`)).text()
    expect(text.split('The field that caused the error.')).toHaveLength(2)
    const { paths } = JSON.parse(text) as { paths: Record<string, Record<string, Described>> }
    const content = paths['/v1/embeddings']?.post?.responses?.['404']?.content
    expect(content?.['application/json']?.schema).toEqual({ $ref: '#/components/schemas/Error' })
  })

  it('describes every route except the hidden ones, and nothing else', async () => {
    const { paths } = (await (await fetch(`${api.url}/openapi.json`)).json()) as {
      readonly paths: Record<string, Record<string, unknown>>
    }
    const described = Object.entries(paths).flatMap(([path, operations]) =>
      Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
    )
    const routes = api.routes.filter(({ method }) => !['HEAD', 'OPTIONS'].includes(method))
    const nameOf = ({ method, path }: ServedRoute): string => `${method} ${path}`
    const shown = routes.filter(({ isHidden }) => !isHidden).map(nameOf)
    expect(described.toSorted()).toEqual([...new Set(shown)].toSorted())
    const hidden = routes.filter(({ isHidden, path }) => isHidden && path.startsWith('/v1/'))
    expect(hidden.map(nameOf).toSorted()).toEqual(HIDDEN.toSorted())
  })
})

describe('the page of the document', () => {
  it('resolves references itself, and keeps a reference of a schema to itself', async () => {
    const { url } = api
    const script = await (await fetch(`${url}/docs/static/swagger-initializer.js`)).text()
    const plugins = pluginsOf(script)
    const own = plugins.map((plugin) => plugin({})).find(({ fn }) => fn !== undefined)
    const { resolveSubtree } = defined(own?.fn)
    const document = (await (await fetch(`${url}/openapi.json`)).json()) as ErrorsDocument
    const { spec, errors } = await resolveSubtree(document, ['paths', '/v1/embeddings', 'post'])
    expect(errors).toEqual([])
    expect(JSON.stringify(spec)).not.toContain('$ref')
    const { schema } = defined(defined(spec.responses['404']).content['application/json'])
    expect(schema).toEqual(document.components.schemas.Error)
    const list = { properties: { 'a/b': { $ref: '#/list' }, next: { $ref: '#/properties/a~1b' } } }
    expect(await resolveSubtree({ ...list, list }, ['properties'])).toEqual({
      errors: [],
      spec: {
        'a/b': { properties: { 'a/b': { $ref: '#/list' }, next: { $ref: '#/list' } } },
        next: { properties: { 'a/b': { $ref: '#/list' }, next: { $ref: '#/properties/a~1b' } } },
      },
    })
  })
})

/** The plugins that the script of the page gives Swagger UI. */
function pluginsOf(script: string): readonly SwaggerPlugin[] {
  let plugins: readonly SwaggerPlugin[] = []
  const SwaggerUIBundle = Object.assign(
    (config: { readonly plugins: readonly SwaggerPlugin[] }) => {
      plugins = config.plugins
      return { initOAuth: () => {} }
    },
    { presets: {}, plugins: { DownloadUrl: () => ({}) } },
  )
  const link = { appendChild: () => {} }
  const window = { onload: () => {}, location: { href: 'http://localhost/docs' } }
  const document = { createElement: () => ({}), querySelector: () => link }
  runInNewContext(script, { window, document, SwaggerUIBundle, SwaggerUIStandalonePreset: {} })
  window.onload()
  return plugins
}

interface ErrorsDocument {
  readonly components: { readonly schemas: { readonly Error: object } }
}

interface ResolvedOperation {
  readonly responses: Readonly<
    Record<string, { readonly content: Readonly<Record<string, { readonly schema: unknown }>> }>
  >
}

type SwaggerPlugin = (system: object) => {
  readonly fn?: {
    resolveSubtree(
      document: object,
      path: readonly string[],
    ): Promise<{ readonly spec: ResolvedOperation; readonly errors: readonly unknown[] }>
  }
}

describe('the description of a body', () => {
  const bodyOf = async (path: string, type = 'application/json') => {
    const document = (await (await fetch(`${api.url}/openapi.json`)).json()) as BodyDocument
    const requestBody = defined(document.paths[path]?.post?.requestBody)
    const validate = new Ajv2020({ strict: false, logger: false, validateFormats: false })
    return { requestBody, accepts: validate.compile(defined(requestBody.content[type]).schema) }
  }

  it.each<[string, object, object]>([
    ['/v1/activities', { type: 'Like' }, {}],
    ['/v1/activities', { activities: [{ type: 'Like' }] }, { activities: [{}] }],
    ['/v1/tokenize', { model: 'm', prompt: 'x' }, { model: 'm' }],
    ['/v1/tokenize', { model: 'm', messages: [{ role: 'user', content: 'x' }] }, { model: 'm' }],
    ['/v1/rerank', { query: 'q', texts: ['a'] }, { query: 'q', model: 'm' }],
    ['/v1/score', { text_1: 'q', text_2: 'a' }, { text_1: 'q' }],
    ...['tool', 'user'].map((role): [string, object, object] => [
      '/v1/chat/completions',
      { model: 'm', messages: [{ role, content: 'x', tool_call_id: 'c' }] },
      { model: 'm', messages: [{ role, tool_call_id: 'c' }] },
    ]),
  ])('of %s accepts %j and not %j', async (path, right, wrong) => {
    const { accepts, requestBody } = await bodyOf(path)
    expect(requestBody.required).toBe(true)
    expect([accepts(right), accepts(wrong)]).toEqual([true, false])
  })

  it.each<[string, object]>([
    ['/v1/chat/completions', { model: 'm', messages: [{ role: 'user', content: 'x' }] }],
    ['/v1/responses', { model: 'm', input: [{ role: 'user', content: 'x' }] }],
    ['/v1/messages', { model: 'm', max_tokens: 1, messages: [{ role: 'user', content: 'x' }] }],
  ])('of %s accepts fields that are ignored and reported', async (path, body) => {
    const { accepts } = await bodyOf(path)
    const [field, [item]] = Object.entries(body).find(([, value]) => Array.isArray(value)) ?? []
    expect(accepts({ ...body, surplus: 1, [field ?? '']: [{ ...item, surplus: 1 }] })).toBe(true)
  })

  it('accepts null for every field that may be left out', async () => {
    const document = (await (await fetch(`${api.url}/openapi.json`)).json()) as BodyDocument
    const ajv = new Ajv2020({ strict: false, logger: false, validateFormats: false })
    const refused = Object.entries(document.paths).flatMap(([path, { post }]) => {
      const schema = post?.requestBody?.content['application/json']?.schema
      if (schema === undefined || !/^\/v\d\//.test(path) || OWN.test(path)) return []
      const fields = [...optionalFields(schema)].filter(([, field]) => !ajv.validate(field, null))
      return fields.map(([name]) => `${path} ${name}`)
    })
    expect(refused).toEqual([])
  })

  it('of a new API key allows no other field', async () => {
    const { accepts } = await bodyOf('/v1/api_keys')
    expect([accepts({ name: 'x' }), accepts({ name: 'x', surplus: 1 })]).toEqual([true, false])
  })

  it.each(['/v1/files', '/v1/images/edits', '/v1/audio/transcriptions'])(
    'of %s is required and has no null in its form',
    async (path) => {
      const { requestBody } = await bodyOf(path, 'multipart/form-data')
      expect(requestBody.required).toBe(true)
      expect(JSON.stringify(requestBody)).not.toMatch(/null/)
    },
  )
})

// Credentials and members: a field of theirs that says nothing is a mistake.
const OWN = /^\/v1\/(api_keys|organizations|invitations|webhook_endpoints)/

/** Every optional property of a body, but for `type`, which selects the others. */
function* optionalFields(node: unknown): Generator<[string, object]> {
  if (typeof node !== 'object' || node === null) return
  const { properties, required } = node as {
    readonly properties?: Readonly<Record<string, object>>
    readonly required?: readonly string[]
  }
  for (const [name, field] of Object.entries(properties ?? {})) {
    if (name !== 'type' && required?.includes(name) !== true) yield [name, field]
  }
  for (const [keyword, value] of Object.entries(node)) {
    if (keyword !== 'if') yield* optionalFields(value)
  }
}

interface BodyDocument {
  readonly paths: Readonly<
    Record<
      string,
      {
        readonly post?: {
          readonly requestBody?: {
            readonly required?: boolean
            readonly content: Readonly<Record<string, { readonly schema: object }>>
          }
        }
      }
    >
  >
}

/** Every `schema` of parameters, bodies and answers. */
function* schemasOf(node: unknown): Generator<object> {
  if (typeof node !== 'object' || node === null) return
  for (const [name, value] of Object.entries(node)) {
    if (name === 'schema' && typeof value === 'object' && value !== null) yield value
    else yield* schemasOf(value)
  }
}
