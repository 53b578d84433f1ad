import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { type RequiredScope, SCOPES } from '#api/v1/scopes.ts'
import { type ApiKeyRequest, openApiKeys } from '#shared/db/api-keys.ts'
import { type Database, openDatabase } from '#shared/db/client.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { freshPrefix, log } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

/** The scope that each family of endpoints requires; the first matching row counts. */
const FAMILIES: readonly [RegExp, RequiredScope][] = [
  [/^\w+ \/v1\/(engines\/\{\w+\}\/)?chat\/completions(\/|$)/, 'chat'],
  [/^\w+ \/v1\/messages/, 'chat'],
  [/^\w+ \/v1\/(responses|conversations)(\/|$)/, 'responses'],
  [/^\w+ \/v1\/jobs/, 'jobs'],
  [/^\w+ \/v1\/webhook_endpoints/, 'webhooks'],
  [/^\w+ \/v1\/((engines\/\{\w+\}\/)?completions|(de)?tokenize)$/, 'completions'],
  [/^\w+ \/v1\/(engines\/\{\w+\}\/)?edits$/, 'edits'],
  [/^\w+ \/v1\/((engines\/\{\w+\}\/)?embeddings|embed(_sparse)?|multi-vector)$/, 'embeddings'],
  [/^\w+ \/v1\/(moderations|classify)$/, 'embeddings'],
  [/^\w+ \/v1\/(engines\/\{\w+\}\/search|rerank|score)$/, 'search'],
  [/^\w+ \/v1\/images\//, 'images'],
  [/^\w+ \/v1\/audio\//, 'audio'],
  [/^\w+ \/v1\/(files|uploads)/, 'files'],
  [/^\w+ \/v1\/batches/, 'batches'],
  [/^\w+ \/v1\/(fine_tuning|fine-tunes)/, 'fine_tuning'],
  [/^DELETE \/v1\/models/, 'fine_tuning'],
  [/^GET \/v1\/activities/, 'activities:read'],
  [/^POST \/v1\/activities/, 'activities:write'],
  [/^\w+ \/v1\/usage$/, 'usage'],
  [/^\w+ \/v1\/api_keys/, 'keys'],
  [/^GET \/v1\/(models|engines|organizations|invitations)/, 'any'],
  [/^\w+ \/v1\/(organizations|invitations)/, 'organizations'],
  [/^\w+ \/v1\/media\//, 'none'],
]

/** Every way to name a model; `image` and the like mean form data with that field. */
const MODEL_REQUESTS: readonly [string, string, object | undefined][] = [
  ['POST', '/completions', { model: 'tiny-chat', prompt: 'x' }],
  ['POST', '/engines/tiny-chat/completions', { prompt: 'x' }],
  ['POST', '/chat/completions', { model: 'tiny-chat', messages: [{ role: 'user', content: 'x' }] }],
  [
    'POST',
    '/chat/completions/batch',
    { model: 'tiny-chat', messages: [[{ role: 'user', content: 'x' }]] },
  ],
  ['POST', '/responses', { model: 'tiny-chat', input: 'x' }],
  ['POST', '/responses/input_tokens', { model: 'tiny-chat', input: 'x' }],
  ['POST', '/edits', { model: 'tiny-chat', input: 'x', instruction: 'x' }],
  ['POST', '/engines/tiny-chat/search', { documents: ['x'], query: 'x' }],
  ['POST', '/embeddings', { model: 'tiny-embed', input: 'x' }],
  ['POST', '/engines/tiny-embed/embeddings', { input: 'x' }],
  ['POST', '/embed', { model: 'tiny-embed', texts: ['x'] }],
  ['POST', '/tokenize', { model: 'tiny-chat', prompt: 'x' }],
  ['POST', '/detokenize', { model: 'tiny-chat', tokens: [1] }],
  ['POST', '/rerank', { model: 'tiny-rerank', query: 'x', documents: ['x'] }],
  ['POST', '/images/generations', { model: 'tiny-sd', prompt: 'x' }],
  // Without a name it is the only model of its kind.
  ['POST', '/images/generations', { prompt: 'x' }],
  ['GET', '/models/tiny-chat', undefined],
  ['GET', '/engines/tiny-embed', undefined],
]
const FORMS: readonly [string, Readonly<Record<string, string>>][] = [
  ['/audio/transcriptions', { model: 'tiny-whisper' }],
  ['/audio/translations', { model: 'tiny-whisper' }],
]

/** Errors in Cohere's form have words alone. */
const STATUS_CODES = new Map([
  [401, 'invalid_api_key'],
  [403, 'missing_scope'],
  [404, 'model_not_found'],
])
/** Errors in Anthropic's form have a type and no code. */
const CODES = new Map([
  ['permission_error', 'missing_scope'],
  ['authentication_error', 'invalid_api_key'],
])

let tiers: Tiers
let database: Database
let routes: readonly { readonly name: string; readonly scope: RequiredScope | undefined }[]
let close: (() => unknown)[] = []

beforeAll(async () => {
  const made = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-rights-'))
  tiers = await startTiers({
    databaseUrl: made.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: freshPrefix(),
  })
  database = openDatabase({ url: made.url, maxPoolSize: 2, logger: log })
  close = [
    () => tiers.stop(),
    () => database.close(),
    made.drop,
    () => rm(folder, { recursive: true, force: true }),
  ]
  const document = (await (await fetch(`${tiers.url}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, unknown>>
  }
  routes = Object.entries(document.paths)
    .filter(([path]) => path.startsWith('/v1/'))
    .flatMap(([path, methods]) => Object.keys(methods).map((m) => `${m.toUpperCase()} ${path}`))
    .map((name) => ({ name, scope: FAMILIES.find(([family]) => family.test(name))?.[1] }))
}, 90_000)

afterAll(async () => {
  for (const step of close) await step()
})

async function newKey(rights: Partial<ApiKeyRequest>): Promise<string> {
  const tables = organizationTables('')
  await database.db
    .insert(tables.organizations)
    .values({ id: 'org-rights', name: 'x' })
    .onConflictDoNothing()
  const { secret } = await openApiKeys(database.db, tables).create({
    organizationId: 'org-rights',
    name: 'x',
    scopes: null,
    modelIds: null,
    expiresAt: null,
    ...rights,
  })
  return secret
}

async function send(secret: string, method: string, path: string, body?: object | FormData) {
  const isJson = body !== undefined && !(body instanceof FormData)
  const answer = await fetch(`${tiers.url}/v1${path}`, {
    method,
    headers: {
      authorization: `Bearer ${secret}`,
      ...(isJson && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: isJson ? JSON.stringify(body) : (body as FormData) }),
  })
  const text = await answer.text()
  const read = text.startsWith('{') ? JSON.parse(text) : {}
  const isCohere = path === '/embed' && answer.status !== 200
  const error = isCohere ? { ...read, code: STATUS_CODES.get(answer.status) } : read.error
  const code = CODES.get(error?.type) ?? error?.code
  return { status: answer.status, code, message: error?.message as string }
}

/** Calls a route with nothing in its body: its caller is looked at first. */
function callEmpty(secret: string, route: string) {
  const [method = '', path = ''] = route.split(' ')
  const url = path.slice('/v1'.length).replace(/\{[^}]+\}/g, 'none')
  return send(secret, method, url, method === 'GET' || method === 'DELETE' ? undefined : {})
}

/** Calls every route at once. */
function callAll(secret: string) {
  return Promise.all(
    routes.map(async (route) => ({ ...route, ...(await callEmpty(secret, route.name)) })),
  )
}

describe('a key', () => {
  it('belongs to a family on every route', () => {
    expect(routes.length).toBeGreaterThan(40)
    expect(routes.filter(({ scope }) => scope === undefined)).toEqual([])
  })

  it('without the scope of a family is refused there, and served everywhere else', async () => {
    for (const scope of SCOPES) {
      const others = await newKey({ scopes: SCOPES.filter((one) => one !== scope) })
      const refused: string[] = []
      for (const { name, status, code, message } of await callAll(others)) {
        expect([name, status]).not.toEqual([name, 401])
        if (code !== 'missing_scope') continue
        expect([status, message]).toEqual([403, expect.stringContaining(scope)])
        refused.push(name)
      }
      const family = routes.filter((route) => route.scope === scope).map(({ name }) => name)
      expect(refused).toEqual(family)
    }
  })

  it('with only one scope is served in its family, and refused in all others', async () => {
    for (const scope of SCOPES) {
      const only = await newKey({ scopes: [scope] })
      for (const { name, scope: wanted, code } of await callAll(only)) {
        const isServed = wanted === scope || wanted === 'any' || wanted === 'none'
        expect([scope, name, code === 'missing_scope']).toEqual([scope, name, !isServed])
      }
    }
  })

  it('may expire as late as can be stored, and no later', async () => {
    const secret = await newKey({})
    const last = Date.UTC(9999, 11, 31) / 1000
    const create = (expiresAt: number) =>
      send(secret, 'POST', '/api_keys', { name: 'x', expires_at: expiresAt })
    expect((await create(last)).status).toBe(200)
    for (const beyond of [last + 86_400, 8.64e12, 1e15]) {
      expect((await create(beyond)).status).toBe(400)
    }
  })

  it('that has expired is refused on every route', async () => {
    const expired = await newKey({ expiresAt: new Date(Date.now() - 1000) })
    for (const { name, scope, status, code } of await callAll(expired)) {
      if (scope === 'none') continue
      expect([name, scope, status, code]).toEqual([name, scope, 401, 'invalid_api_key'])
    }
  })

  it('with a list of models finds no other model, by any name', async () => {
    const limited = await newKey({ modelIds: ['another-model'] })
    for (const [method, path, body] of MODEL_REQUESTS) {
      const { status, code } = await send(limited, method, path, body)
      expect([path, body, status, code]).toEqual([path, body, 404, 'model_not_found'])
    }
    for (const [path, fields] of FORMS) {
      const form = new FormData()
      for (const [name, value] of Object.entries(fields)) form.append(name, value)
      form.append('file', new Blob([new Uint8Array(4000)]), 'a.wav')
      const { status, code } = await send(limited, 'POST', path, form)
      expect([path, status, code]).toEqual([path, 404, 'model_not_found'])
    }
    const one = await newKey({ modelIds: ['tiny-embed'] })
    for (const list of ['/models', '/engines']) {
      const answer = await fetch(`${tiers.url}/v1${list}`, {
        headers: { authorization: `Bearer ${one}` },
      })
      const { data } = (await answer.json()) as { data: { id: string }[] }
      expect(data.map(({ id }) => id)).toEqual(['tiny-embed'])
    }
    expect((await send(one, 'GET', '/models/tiny-embed')).status).toBe(200)
  })
})
