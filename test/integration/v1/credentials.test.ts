import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { decodeJwt, type JWTPayload, SignJWT } from 'jose'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { ROUTES } from '#api/auth/routes.ts'
import { type ApiKeyRequest, openApiKeys } from '#shared/db/api-keys.ts'
import { type Database, openDatabase } from '#shared/db/client.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { type ApiHere, type ServedRoute, startApiHere } from '#test/support/api-here.ts'
import { jsonCallTo } from '#test/support/json-call.ts'
import { freshPrefix, log } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { apiEnv } from '#test/support/tiers.ts'

const ID = '00000000-0000-4000-8000-000000000000'
/**
 * Routes of the user server look at the session, as the protocol defines: these tokens stay valid.
 */
const VALID_FOR_USERS = [
  'a token of another audience',
  'the token of a banned user',
  'the token of the administration',
]
/** The console takes an administrator's token, too. */
const VALID_FOR_CONSOLE = ['the token of the administration']
const AT_ONCE = 8
/** Every route is called with every invalid credential. */
const TIMEOUT_MS = 240_000
/** Routes that need no credential, each with the reason. */
const OPEN: readonly (readonly [RegExp, string])[] = [
  [/^OPTIONS /, 'browsers ask before they send a credential'],
  [/^GET \/v1\/media\//, 'the address is signed'],
  [/^GET \/(healthz|readyz|ping)$/, 'probes have no key'],
  [/^GET \/(openapi\.json|docs(\/|$))/, 'the description is public'],
  [/^GET \/(playground\/|playground$|$)/, 'a page, whose requests bring a credential'],
  [/^GET \/admin\/(assets\/|sign-in\/?$)/, 'the page to sign in, and its files'],
  [/^POST \/admin\/sign-(in|out)$/, 'the forms of that page'],
]

let api: ApiHere
let database: Database
let close: (() => unknown)[] = []
let call: ReturnType<typeof jsonCallTo>
/** Every route that is neither open nor of the user server. */
let guarded: readonly ServedRoute[]
let user: { readonly token: string; readonly id: string }
let revoked: readonly (readonly [name: string, make: () => Promise<string | undefined>])[]

const secretOf = (text: string) => new TextEncoder().encode(text)
const sign = (claims: JWTPayload, secret: string) =>
  new SignJWT(claims).setProtectedHeader({ alg: 'HS256' }).sign(secretOf(secret))

async function newUser(email: string): Promise<typeof user> {
  const { body } = await call('POST', '/signup', undefined, { email, password: 'correct horse' })
  return { token: body.access_token, id: body.user.id }
}

async function newKey(change: Partial<ApiKeyRequest>): Promise<{ id: string; secret: string }> {
  const keys = openApiKeys(database.db, organizationTables(''))
  const { key, secret } = await keys.create({
    organizationId: 'org-own',
    name: 'x',
    scopes: null,
    modelIds: null,
    expiresAt: null,
    ...change,
  })
  return { id: key.id, secret }
}

beforeAll(async () => {
  const made = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-credentials-'))
  api = await startApiHere({
    databaseUrl: made.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: freshPrefix(),
    // Thousands of refused calls come from one address.
    env: {
      AUTH_MAILER_AUTOCONFIRM: 'true',
      AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true',
      MILLRACE_FAILURES_PER_NETWORK: '100000',
    },
  })
  database = openDatabase({ url: made.url, maxPoolSize: 2, logger: log })
  close = [
    () => api.stop(),
    () => database.close(),
    made.drop,
    () => rm(folder, { recursive: true, force: true }),
  ]
  call = jsonCallTo(api.url)
  await database.db
    .insert(organizationTables('').organizations)
    .values({ id: 'org-own', name: 'x' })
  const ofUsers = new Set(ROUTES.map(({ path }) => path.replaceAll(/:(\w+)/g, '{$1}')))
  guarded = api.routes.filter(
    ({ method, path }) =>
      // HEAD runs what GET does.
      method !== 'HEAD' &&
      !ofUsers.has(path.replace(/^\/auth\/v1\//, '/').replace(/\/$/, '')) &&
      !OPEN.some(([open]) => open.test(`${method} ${path}`)),
  )
  user = await newUser('user@example.test')
  revoked = await makeRefused()
}, 120_000)

afterAll(async () => {
  for (const each of close) await each()
})

/** Credentials that open nothing. */
async function makeRefused(): Promise<typeof revoked> {
  const secret = apiEnv('postgres://x', 1).AUTH_JWT_SECRET as string
  const claims = decodeJwt(user.token)
  const service = await sign({ role: 'service_role' }, secret)
  const keys = openApiKeys(database.db, organizationTables(''))
  // A key for each request: after ten failures one would be refused unread.
  const gone = async () => {
    const { id, secret: text } = await newKey({})
    await keys.revoke('org-own', id)
    return text
  }
  const expired = async () => (await newKey({ expiresAt: new Date(Date.now() - 1000) })).secret
  const [deleted, banned, out] = [
    await newUser('deleted@example.test'),
    await newUser('banned@example.test'),
    await newUser('out@example.test'),
  ]
  await call('DELETE', `/admin/users/${deleted.id}`, service)
  await call('PUT', `/admin/users/${banned.id}`, service, { ban_duration: '1h' })
  await call('POST', '/logout', out.token)
  return [
    ['no credential', async () => undefined],
    ['an unknown key', async () => `mr-${randomBytes(30).toString('hex')}`],
    ['a revoked key', gone],
    ['an expired key', expired],
    [
      'an expired token',
      () => sign({ ...claims, exp: Math.floor(Date.now() / 1000) - 60 }, secret),
    ],
    ['a token of another audience', () => sign({ ...claims, aud: 'another' }, secret)],
    ['a token signed with another secret', () => sign(claims, `${secret} of somebody`)],
    ['the token of a deleted user', async () => deleted.token],
    ['the token of a banned user', async () => banned.token],
    ['the token of the administration', async () => service],
  ]
}

// Names of models may hold slashes.
const urlOf = (path: string) => path.replaceAll(/\{[^}]+\}/g, ID).replace('*', 'a/b')
const isOfConsole = ({ path }: ServedRoute) => /^\/admin(\/|$)/.test(path)

/** The routes that answer a credential with anything but a refusal. */
async function openedBy(routes: readonly ServedRoute[], make: () => Promise<string | undefined>) {
  const left = [...routes]
  const opened: (ServedRoute & { readonly status: number })[] = []
  const flow = async (): Promise<void> => {
    for (let route = left.shift(); route !== undefined; route = left.shift()) {
      const { method, path } = route
      const body = ['GET', 'DELETE'].includes(method) ? undefined : {}
      const answer = await fetch(`${api.url}${urlOf(path)}`, {
        method,
        headers: await headersOf(make, body),
        ...(body !== undefined && { body: JSON.stringify(body) }),
        redirect: 'manual',
      })
      await answer.body?.cancel()
      if (![401, 403].includes(answer.status)) opened.push({ ...route, status: answer.status })
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, flow))
  return opened
}

async function headersOf(make: () => Promise<string | undefined>, body: object | undefined) {
  const secret = await make()
  return {
    ...(secret !== undefined && { authorization: `Bearer ${secret}` }),
    ...(body !== undefined && { 'content-type': 'application/json' }),
  }
}

describe('every route of the routing table that is not listed as open', () => {
  it('is refused to every invalid credential', { timeout: TIMEOUT_MS }, async () => {
    expect(guarded.filter(({ path }) => path.startsWith('/v1/')).length).toBeGreaterThan(80)
    expect(guarded.filter(isOfConsole).length).toBeGreaterThan(60)
    const opened: unknown[] = []
    for (const [name, make] of revoked) {
      const routes = guarded.filter(
        (route) => !(isOfConsole(route) && VALID_FOR_CONSOLE.includes(name)),
      )
      opened.push(...(await openedBy(routes, make)).map((answer) => ({ name, ...answer })))
    }
    expect(opened).toEqual([])
  })

  it('and belongs to the console is refused to users and API keys', async () => {
    const { secret } = await newKey({})
    const anonymous = await call('POST', '/signup', undefined, {})
    for (const credential of [user.token, secret, anonymous.body.access_token as string]) {
      expect(await openedBy(guarded.filter(isOfConsole), async () => credential)).toEqual([])
    }
  })
})

describe('an API key', () => {
  it('cannot be guessed: after ten wrong ones with its beginning, the right one must wait too', async () => {
    const { secret } = await newKey({})
    const guess = (at: number) =>
      `${secret.slice(0, 12)}${String(at).padStart(secret.length - 12, 'x')}`
    const statuses: number[] = []
    for (let at = 0; at < 12; at += 1) {
      statuses.push((await call('GET', '/v1/models', guess(at))).status)
    }
    expect(statuses).toEqual([...Array(10).fill(401), 429, 429])
    const { status, body } = await call('GET', '/v1/models', secret)
    expect([status, body.error.code]).toEqual([429, 'over_request_rate_limit'])
  })

  it('cannot be created by an anonymous user until the user has an address', async () => {
    const { body } = await call('POST', '/signup', undefined, {})
    expect(body.user.is_anonymous).toBe(true)
    const refused = await call('POST', '/v1/api_keys', body.access_token, { name: 'x' })
    expect([refused.status, refused.body.error.code]).toEqual([403, 'insufficient_permissions'])
    await call('PUT', '/user', body.access_token, { email: 'named@example.test' })
    const created = await call('POST', '/v1/api_keys', body.access_token, { name: 'x' })
    expect(created.status).toBe(200)
  })
})

describe('every route of the user server that needs a user', () => {
  const ofUsers = ROUTES.filter(({ guard }) => guard !== 'public')

  it('is refused to every invalid credential', { timeout: TIMEOUT_MS }, async () => {
    expect(ofUsers.length).toBeGreaterThan(20)
    const opened: unknown[] = []
    for (const [name, make] of revoked) {
      if (VALID_FOR_USERS.includes(name)) continue
      for (const { method, path } of ofUsers) {
        const body = ['GET', 'DELETE'].includes(method) ? undefined : {}
        const { status } = await call(method, path.replaceAll(/:\w+/g, ID), await make(), body)
        if (![401, 403].includes(status)) opened.push({ name, method, path, status })
      }
    }
    expect(opened).toEqual([])
  })

  it('and belongs to administrators is refused to a user and to an API key', async () => {
    const opened: unknown[] = []
    for (const credential of [user.token, (await newKey({})).secret]) {
      for (const { method, path } of ofUsers.filter(({ guard }) => guard === 'admin')) {
        const body = ['GET', 'DELETE'].includes(method) ? undefined : {}
        const { status } = await call(method, path.replaceAll(/:\w+/g, ID), credential, body)
        if (![401, 403].includes(status)) opened.push({ method, path, status })
      }
    }
    expect(opened).toEqual([])
  })
})
