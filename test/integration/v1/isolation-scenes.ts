import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { inject } from 'vitest'

import { AnswerStore } from '#api/stored/answer-store.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import { type Database, openDatabase } from '#shared/db/client.ts'
import { authTables } from '#shared/db/schema/auth.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { type ApiHere, type ServedRoute, startApiHere } from '#test/support/api-here.ts'
import { freshPrefix, log } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { TIERS_ENCRYPTION_KEY } from '#test/support/tiers.ts'

/** Routes whose ids name nothing of an organization, each with the reason. */
const SHARED: readonly (readonly [RegExp, string])[] = [
  [/^\/v1\/(models|engines)\//, 'models of the catalogue belong to the installation'],
  [/^\/v1\/media\//, 'the address of an image is its own proof'],
  [/^\/v1\/fine_tuning\/checkpoints\/[^/]+\/permissions/, 'refused to all callers'],
]

/** An organization and what calls for it. */
export interface Scene {
  readonly organizationId: string
  readonly secret: string
}

/** The part of an API description that these tests read. */
export interface Described {
  readonly paths: Readonly<
    Record<
      string,
      Readonly<
        Record<
          string,
          {
            readonly parameters?: readonly { readonly name: string; readonly in: string }[]
            readonly requestBody?: {
              readonly content: Readonly<
                Record<string, { readonly schema?: { readonly properties?: object } }>
              >
            }
          }
        >
      >
    >
  >
}

let api: ApiHere
let database: Database
let dropDatabase: () => Promise<void>
let folder: string

/** Starts an API process without workers. */
export async function openIsolation() {
  const made = await createDatabase()
  dropDatabase = made.drop
  folder = await mkdtemp(join(tmpdir(), 'millrace-isolation-'))
  api = await startApiHere({
    databaseUrl: made.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: freshPrefix(),
    env: {
      AUTH_MAILER_AUTOCONFIRM: 'true',
      AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true',
      MILLRACE_FINE_TUNING_JOBS_MAX: '1000',
    },
  })
  database = openDatabase({ url: made.url, maxPoolSize: 2, logger: log })
  const document = (await (await fetch(`${api.url}/openapi.json`)).json()) as Described
  // From the routing table rather than the document, which leaves routes out.
  const routes = api.routes.filter(
    ({ method, path }) =>
      method !== 'HEAD' &&
      /^\/v1\/.*[{*]/.test(path) &&
      !SHARED.some(([shared]) => shared.test(path)),
  )
  return { url: api.url, document, routes }
}

/** Ends what was started, as far as it was. */
export async function closeIsolation(): Promise<void> {
  await api?.stop()
  await database?.close()
  await dropDatabase?.()
  if (folder !== undefined) await rm(folder, { recursive: true, force: true })
}

/** The access token of a new user, who is anonymous without an address. */
export async function newToken(email?: string): Promise<string> {
  const body = email === undefined ? {} : { email, password: 'correct horse' }
  const { text } = await request('', 'POST', '/signup', body)
  return JSON.parse(text).access_token
}

/** Sends one request; `id` is that of a created thing. */
export const request = async (
  secret: string,
  method: string,
  path: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ status: number; text: string; id: string }> => {
  const isForm = body instanceof FormData
  const answer = await fetch(`${api.url}${path}`, {
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

/** A new organization with a key that has all rights. */
export async function newScene(organizationId: string): Promise<Scene> {
  const tables = organizationTables('')
  await database.db.insert(tables.organizations).values({ id: organizationId, name: 'x' })
  const { secret } = await openApiKeys(database.db, tables).create({
    organizationId,
    name: 'x',
    scopes: null,
    modelIds: null,
    expiresAt: null,
  })
  return { organizationId, secret }
}

const BATCH_LINE = { custom_id: 'a', method: 'POST', url: '/v1/embeddings', body: { input: 'x' } }

/** Uploads a file, for batches if nothing else is said. */
export async function upload(
  { secret }: Scene,
  purpose = 'batch',
  line: object = BATCH_LINE,
): Promise<string> {
  const form = new FormData()
  form.append('purpose', purpose)
  form.append('file', new Blob([JSON.stringify(line)]), 'lines.jsonl')
  return (await request(secret, 'POST', '/v1/files', form)).id
}

async function tune(scene: Scene): Promise<string> {
  const training_file = await upload(scene, 'fine-tune', { prompt: 'a', completion: ' b' })
  const body = { model: 'tiny-chat', training_file }
  return (await request(scene.secret, 'POST', '/v1/fine_tuning/jobs', body)).id
}

/** How each family's things come into being; a route of another family fails the test. */
const CREATE_BY_FAMILY: Readonly<Record<string, (scene: Scene) => Promise<string>>> = {
  files: (scene) => upload(scene),
  uploads: async ({ secret }) => {
    const body = { filename: 'x', purpose: 'user_data', bytes: 1, mime_type: 'text/plain' }
    return (await request(secret, 'POST', '/v1/uploads', body)).id
  },
  fine_tuning: tune,
  'fine-tunes': tune,
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
      db: database.db,
      tables: jobTables(''),
      retentionDays: 1,
      cipher: openContentCipher([TIERS_ENCRYPTION_KEY]),
    })
    await answers.add({
      id,
      organizationId,
      userId: null,
      object: 'chat.completion',
      model: 'x',
      previousId: null,
      conversationId: null,
      jobId: null,
      metadata: null,
      input: [],
      answer: { id },
      createdAtMs: Date.now(),
    })
    return id
  },
  responses: async ({ secret }) =>
    (
      await request(secret, 'POST', '/v1/responses', {
        model: 'tiny-chat',
        input: 'x',
        background: true,
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
    (await request(secret, 'POST', '/v1/webhook_endpoints', { url: 'https://localhost/' })).id,
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
export const PARTS: Readonly<Record<string, (scene: Scene, id: string) => Promise<string>>> = {
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
      id,
      organizationId,
      email: `${id}@example.test`,
      role: 'member',
      invitedBy: 'key:x',
      expiresAt: new Date(Date.now() + 60_000),
    })
    return id
  },
}

/** The name of the second id of a path. */
export function partOf(path: string): string | undefined {
  return [...path.matchAll(/\{([^}]+)\}/g)][1]?.[1]
}

/** How things of the family of a path come into being. */
export function creatorOf(path: string): (scene: Scene) => Promise<string> {
  const family = path.split('/')[2] as string
  const create = CREATE_BY_FAMILY[family]
  if (create === undefined) throw new Error(`say how things of /v1/${family} are made`)
  return create
}

const OTHER_USER = '00000000-0000-4000-8000-000000000000'
const BODIES: readonly [RegExp, unknown][] = [
  [/^PATCH \/v1\/api_keys\//, { requests_per_minute: null }],
  [/^POST .*\{id\}\/invitations$/, { email: 'somebody@example.test' }],
  [/^POST .*\/items$/, { items: [{ role: 'user', content: 'x' }] }],
  [/^POST .*\/complete$/, { part_ids: ['part_0'] }],
  [/^PATCH .*\/members\//, { role: 'member' }],
  [/^PATCH \/v1\/jobs\//, { priority: 'flex' }],
  [/^PATCH .*\/webhook_endpoints\//, { description: 'mine now' }],
  [/^PATCH /, { name: 'mine now' }],
  [/^POST /, {}],
]

/** Calls a route with this id in its first place, and another in its second. */
export function call(secret: string, { method, path }: ServedRoute, id: string, part = OTHER_USER) {
  const url = path.replace(/\{[^}]+\}/, () => id).replace(/\{[^}]+\}/, () => part)
  const body = BODIES.find(([pattern]) => pattern.test(`${method} ${path}`))?.[1]
  return request(secret, method, url, body)
}
