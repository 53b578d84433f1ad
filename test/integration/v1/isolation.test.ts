import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { AnswerStore } from '#api/stored/answer-store.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import { type Database, openDatabase } from '#shared/db/client.ts'
import { authTables } from '#shared/db/schema/auth.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { freshPrefix, log } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, TIERS_ENCRYPTION_KEY, type Tiers } from '#test/support/tiers.ts'

// What everybody shares: models are the installation's, and an image's address is its own proof.
const SHARED = /^\/v1\/(models|engines|media)\//
const MALFORMED = ['x', '..%2f..', '%00', "'%20or%201=1--", 'a'.repeat(300), '%F0%9F%92%A5']

interface Scene {
  readonly organizationId: string
  readonly secret: string
}

let tiers: Tiers
let database: Database
let dropDatabase: () => Promise<void>
let folder: string
let own: Scene
let other: Scene
let routes: readonly { readonly method: string; readonly path: string }[]

const request = async (
  secret: string,
  method: string,
  path: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ status: number; text: string; id: string }> => {
  const isForm = body instanceof FormData
  const answer = await fetch(`${tiers.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${secret}`,
      ...(body !== undefined && !isForm && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: isForm ? body : JSON.stringify(body) }),
  })
  const text = await answer.text()
  const isObject = answer.ok && text.startsWith('{')
  return { status: answer.status, text, id: isObject ? JSON.parse(text).id : '' }
}

async function upload({ secret }: Scene): Promise<string> {
  const form = new FormData()
  const line = { custom_id: 'a', method: 'POST', url: '/v1/embeddings', body: { input: 'x' } }
  form.append('purpose', 'batch')
  form.append('file', new Blob([JSON.stringify(line)]), 'lines.jsonl')
  return (await request(secret, 'POST', '/v1/files', form)).id
}

/** How each family's things come into being; a route of another family fails the test. */
const CREATE_BY_FAMILY: Readonly<Record<string, (scene: Scene) => Promise<string>>> = {
  files: upload,
  activities: async ({ secret }) =>
    (await request(secret, 'POST', '/v1/activities', { type: 'Like', object: 'doc:1' })).id,
  api_keys: async ({ secret }) =>
    (await request(secret, 'POST', '/v1/api_keys', { name: 'more' })).id,
  organizations: async ({ organizationId }) => organizationId,
  // Those that are received belong to people; no key has one.
  invitations: async (scene) => PARTS.invitation_id?.(scene, '') ?? '',
  chat: async ({ organizationId }) => {
    const id = `chatcmpl-${randomUUID()}`
    const answers = new AnswerStore({
      ...{ db: database.db, tables: jobTables(''), retentionDays: 1 },
      cipher: openContentCipher([TIERS_ENCRYPTION_KEY]),
    })
    await answers.add({
      ...{ id, organizationId, userId: null, object: 'chat.completion', model: 'x' },
      ...{ previousId: null, conversationId: null, jobId: null, metadata: null },
      ...{ input: [], answer: { id }, createdAtMs: Date.now() },
    })
    return id
  },
  responses: async ({ secret }) =>
    (
      await request(secret, 'POST', '/v1/responses', {
        ...{ model: 'tiny-chat', input: 'x', background: true },
      })
    ).id,
  conversations: async ({ secret }) => (await request(secret, 'POST', '/v1/conversations', {})).id,
  jobs: async ({ secret }) => {
    const body = { model: 'tiny-embed', input: 'x' }
    const headers = { prefer: 'respond-async' }
    const { id } = await request(secret, 'POST', '/v1/embeddings', body, headers)
    // No worker runs here; the events of a job are complete when it has ended.
    await request(secret, 'POST', `/v1/jobs/${id}/cancel`)
    return id
  },
  webhook_endpoints: async ({ secret }) =>
    (await request(secret, 'POST', '/v1/webhook_endpoints', { url: 'https://example.test/' })).id,
  batches: async (scene) =>
    (
      await request(scene.secret, 'POST', '/v1/batches', {
        input_file_id: await upload(scene),
        endpoint: '/v1/embeddings',
        completion_window: '24h',
      })
    ).id,
}

/** How the parts of things come into being, by the name of the second id of a path. */
const PARTS: Readonly<Record<string, (scene: Scene, id: string) => Promise<string>>> = {
  item_id: async ({ secret }, id) => {
    const items = [{ type: 'message', role: 'user', content: 'x' }]
    const path = `/v1/conversations/${id}/items`
    const { text } = await request(secret, 'POST', path, { items })
    return text.startsWith('{') ? JSON.parse(text).data?.[0].id : 'x'
  },
  delivery_id: async ({ secret }, id) =>
    (await request(secret, 'POST', `/v1/webhook_endpoints/${id}/test`)).id,
  user_id: async ({ organizationId }) => {
    const userId = randomUUID()
    const { users } = authTables('')
    const moment = { createdAt: new Date(), updatedAt: new Date() }
    await database.db.insert(users).values({ id: userId, ...moment })
    const { members } = organizationTables('')
    await database.db.insert(members).values({ organizationId, userId, role: 'member' })
    return userId
  },
  invitation_id: async ({ organizationId }) => {
    const id = `inv_${randomUUID()}`
    await database.db.insert(organizationTables('').invitations).values({
      ...{ id, organizationId, email: `${id}@example.test`, role: 'member' },
      ...{ invitedBy: 'key:x', expiresAt: new Date(Date.now() + 60_000) },
    })
    return id
  },
}

beforeAll(async () => {
  const made = await createDatabase()
  dropDatabase = made.drop
  folder = await mkdtemp(join(tmpdir(), 'millrace-isolation-'))
  tiers = await startTiers({
    ...{ databaseUrl: made.url, redisUrl: inject('redisUrl'), folder, keyPrefix: freshPrefix() },
  })
  database = openDatabase({ url: made.url, maxPoolSize: 2, logger: log })
  ;[own, other] = [await newScene('org-own'), await newScene('org-other')]
  const document = (await (await fetch(`${tiers.url}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, unknown>>
  }
  routes = Object.entries(document.paths)
    .filter(([path]) => path.startsWith('/v1/') && path.includes('{') && !SHARED.test(path))
    .flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => ({ method: method.toUpperCase(), path })),
    )
}, 90_000)

afterAll(async () => {
  await tiers?.stop()
  await database?.close()
  await dropDatabase?.()
  if (folder !== undefined) await rm(folder, { recursive: true, force: true })
})

async function newScene(organizationId: string): Promise<Scene> {
  const tables = organizationTables('')
  await database.db.insert(tables.organizations).values({ id: organizationId, name: 'x' })
  const { secret } = await openApiKeys(database.db, tables).create({
    ...{ organizationId, name: 'x', scopes: null, modelIds: null, expiresAt: null },
  })
  return { organizationId, secret }
}

/** The name of the second id of a path. */
function partOf(path: string): string | undefined {
  return [...path.matchAll(/\{([^}]+)\}/g)][1]?.[1]
}

function creatorOf(path: string): (scene: Scene) => Promise<string> {
  const family = path.split('/')[2] as string
  const create = CREATE_BY_FAMILY[family]
  if (create === undefined) throw new Error(`say how things of /v1/${family} are made`)
  return create
}

const OTHER_USER = '00000000-0000-4000-8000-000000000000'
const BODIES: readonly [RegExp, unknown][] = [
  [/^POST .*\{id\}\/invitations$/, { email: 'somebody@example.test' }],
  [/^POST .*\/items$/, { items: [{ role: 'user', content: 'x' }] }],
  [/^POST .*\/members$/, { user_id: OTHER_USER, role: 'member' }],
  [/^PATCH .*\/members\//, { role: 'member' }],
  [/^PATCH .*\/webhook_endpoints\//, { description: 'mine now' }],
  [/^PATCH /, { name: 'mine now' }],
  [/^POST /, {}],
]

/** Calls a route with this id in its first place, and another in its second. */
function call(
  secret: string,
  { method, path }: (typeof routes)[number],
  id: string,
  part = OTHER_USER,
) {
  const url = path.replace(/\{[^}]+\}/, () => id).replace(/\{[^}]+\}/, () => part)
  const body = BODIES.find(([pattern]) => pattern.test(`${method} ${path}`))?.[1]
  return request(secret, method, url, body)
}

describe('the limits, the usage and the keys of requests', () => {
  it('are in force in a whole process', async () => {
    const listed = await fetch(`${tiers.url}/v1/usage`, {
      headers: { authorization: `Bearer ${own.secret}` },
    })
    expect(listed.status).toBe(200)
    expect(listed.headers.get('x-ratelimit-limit-requests')).toBe('600000')
    const send = () =>
      fetch(`${tiers.url}/v1/activities`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${own.secret}`,
          'content-type': 'application/json',
          'idempotency-key': 'once',
        },
        body: JSON.stringify({ type: 'Like', object: 'doc:2' }),
      })
    const [first, again] = [await send(), await send()]
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(await again.text()).toBe(await first.text())
  })
})

describe('every route that takes an id', () => {
  it('is known to this test', () => {
    expect(routes.length).toBeGreaterThan(10)
    for (const { path } of routes) {
      expect(creatorOf(path)).toBeTypeOf('function')
      const part = partOf(path)
      if (part !== undefined) expect([path, PARTS[part]]).toEqual([path, expect.any(Function)])
    }
  })

  // A job that no worker ran has no result.
  let found: typeof routes = []
  beforeAll(() => {
    found = routes.filter(({ method, path }) => method === 'GET' && !path.endsWith('/result'))
  })

  it("answers 404 for another organization's, and leaves it as it was", async () => {
    // A caller that is not a user is refused before anything is looked up.
    for (const route of routes.filter(({ path }) => !path.startsWith('/v1/invitations'))) {
      const id = await creatorOf(route.path)(other)
      expect([route, id === '' || id === undefined]).toEqual([route, false])
      const { status } = await call(own.secret, route, encodeURIComponent(id))
      expect([route, status]).toEqual([route, 404])
      const get = found.find(({ path }) => path === route.path)
      if (get === undefined) continue
      const part = await PARTS[partOf(route.path) ?? '']?.(other, id)
      const kept = await call(other.secret, get, encodeURIComponent(id), part)
      expect([route, kept.status]).toEqual([route, 200])
    }
  })

  it('finds its own', async () => {
    for (const route of found) {
      const id = await creatorOf(route.path)(own)
      const part = await PARTS[partOf(route.path) ?? '']?.(own, id)
      const { status } = await call(own.secret, route, encodeURIComponent(id), part)
      expect([route, status]).toEqual([route, 200])
    }
  })

  it("finds no part of another organization's thing, under either id", async () => {
    for (const route of routes) {
      const create = PARTS[partOf(route.path) ?? '']
      if (create === undefined) continue
      const [mine, theirs] = [await creatorOf(route.path)(own), await creatorOf(route.path)(other)]
      const part = await create(other, theirs)
      for (const id of [mine, theirs]) {
        const { status } = await call(own.secret, route, id, part)
        expect([route, id, status]).toEqual([route, id, 404])
      }
      const get = routes.find(({ method, path }) => method === 'GET' && path === route.path)
      if (get === undefined) continue
      const kept = await call(other.secret, get, theirs, part)
      expect([route, kept.status]).toEqual([route, 200])
    }
  })

  it.each(MALFORMED)('refuses %s in the second place too', async (part) => {
    for (const route of routes.filter(({ path }) => partOf(path) !== undefined)) {
      const { status } = await call(own.secret, route, own.organizationId, part)
      expect([route, status]).toEqual([route, expect.toSatisfy(isClientError)])
    }
  })

  it('answers 404 for what was deleted', async () => {
    const deletions = routes.filter(
      ({ method, path }) => method === 'DELETE' && path.split('{').length === 2,
    )
    for (const deletion of deletions.filter(({ path }) => !path.includes('organizations'))) {
      const family = routes.filter(({ path }) => path.startsWith(deletion.path))
      for (const route of family) {
        const id = await creatorOf(route.path)(own)
        expect((await call(own.secret, deletion, id)).status).toBe(200)
        const { status } = await call(own.secret, route, id)
        expect([route, status]).toEqual([route, 404])
      }
    }
  })

  it.each(MALFORMED)('refuses %s as an error of the client', async (id) => {
    for (const route of routes.filter(({ path }) => !path.startsWith('/v1/invitations'))) {
      const { status, text } = await call(own.secret, route, id)
      expect([route, status]).toEqual([route, expect.toSatisfy(isClientError)])
      expect(JSON.parse(text)).toHaveProperty('error.message')
    }
  })
})

const isClientError = (status: number): boolean => [400, 404, 414].includes(status)
