import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'

import { createDelivery } from '#api/auth/delivery/create-delivery.ts'
import { systemClock } from '#shared/clock.ts'
import { PROVIDER_IDS } from '#shared/config/provider-ids.ts'
import { createLogger } from '#shared/logger.ts'
import type { PeerReply } from '#test/support/http-peers.ts'
import { PROVIDER_CASES, type ProviderCase } from '#test/support/provider-peers.ts'

import { createUser } from './support/people.ts'
import { type Incident, type ProviderWorld, startProviderWorld } from './support/provider-world.ts'
import { type CallResult, readConfig, startServer, type TestServer } from './support/server.ts'

const SITE = 'http://localhost:3000'
const CALLBACK = 'http://localhost:9999/callback'
const BY_ID = Object.fromEntries(PROVIDER_CASES.map((row) => [row.id, row]))
const GITHUB = BY_ID.github as ProviderCase

let world: ProviderWorld
let server: TestServer
let delivery: ReturnType<typeof createDelivery>

beforeAll(async () => {
  world = await startProviderWorld(GITHUB)
  const env = {
    ...providerSettings(world.url),
    AUTH_INTERNAL_HTTP_TIMEOUT: '3s',
    AUTH_SMTP_MAX_FREQUENCY: '0',
  }
  const required = {
    AUTH_SITE_URL: SITE,
    AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
    AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
  }
  delivery = createDelivery({
    config: readConfig({ ...required, ...env }),
    clock: systemClock,
    log: createLogger({ level: 'silent' }),
  })
  server = await startServer({ env, providers: delivery.providers })
})
beforeEach(async () => {
  await server.database.pool.query('truncate users cascade')
})
afterAll(async () => {
  await server.close()
  delivery.close()
  await world.stop()
})

describe('the way through', () => {
  it.each(PROVIDER_CASES)('$id ends as the state of its addresses requires', async (row) => {
    const { emails, subject } = row.expected
    const { fragment, location } = await visit(row)
    const [email] = emails
    if (email === undefined) {
      expect(fragment.error_description).toBe('Error getting user email from external provider')
    } else if (!email.isVerified) {
      expect(fragment).toMatchObject({
        error: 'access_denied',
        error_code: 'provider_email_needs_verification',
      })
      expect(server.lastMail(email.email).kind).toBe('confirmation')
    } else {
      expect(location.startsWith(`${SITE}/after#`)).toBe(true)
      expect(fragment).toMatchObject({
        provider: row.id,
        provider_token: 'provider-access',
        provider_refresh_token: 'provider-refresh',
      })
      expect(await userOf(fragment)).toMatchObject({
        email: email.email,
        email_confirmed_at: expect.any(String),
        app_metadata: { provider: row.id, providers: [row.id] },
        user_metadata: { sub: subject, provider_id: subject, ...row.expected.metadata },
        identities: [{ provider: row.id, id: subject }],
      })
    }
  })

  it('signs the same user in again, with the changed profile', async () => {
    const first = await userOf((await visit(GITHUB)).fragment)
    const renamed = { '/api/v3/user': { body: { id: 42, login: 'octo2', name: 'Octo II' } } }
    const again = await userOf((await visit(GITHUB, { profile: renamed })).fragment)
    expect(again).toMatchObject({
      id: first.id,
      user_metadata: { full_name: 'Octo II', user_name: 'octo2' },
    })
  })
})

describe('an existing user', () => {
  const emailsOf = (email: string, verified: boolean) => ({
    profile: { '/api/v3/user/emails': { body: [{ email, primary: true, verified }] } },
  })

  it('is linked by an address that the provider verified', async () => {
    const existing = await createUser(server)
    const { fragment } = await visit(GITHUB, emailsOf(existing.email, true))
    const { id, email } = await userOf(fragment)
    expect({ id, email }).toEqual({ id: existing.id, email: existing.email })
  })

  it('is not linked by an address that the provider did not verify', async () => {
    const existing = await createUser(server)
    const { fragment } = await visit(GITHUB, emailsOf(existing.email, false))
    expect(fragment).toMatchObject({ error_code: 'provider_email_needs_verification' })
    expect(fragment).not.toHaveProperty('access_token')
  })

  it('is not taken over with an address that is equal only in lower case', async () => {
    const existing = await createUser(server, { email: 'kate@example.com' })
    const emails = [{ email: '\u212Aate@example.com', primary: true, verified: true }]
    const profile = { '/api/v3/user/emails': { body: emails } }
    const { fragment } = await visit(GITHUB, { profile })
    expect(fragment).not.toHaveProperty('access_token')
    expect(fragment.error_description).toBe('Error getting user email from external provider')
    const { rows } = await server.database.pool.query('select id from users')
    expect(rows).toEqual([{ id: existing.id }])
  })

  it('is not taken over with an address that only an unsigned field names', async () => {
    const existing = await createUser(server)
    const row = BY_ID.google as ProviderCase
    const claims = { email: existing.email, email_verified: 'false' }
    const { fragment } = await visit(row, { claims })
    expect(fragment).toMatchObject({ error_code: 'provider_email_needs_verification' })
  })
})

describe('a sign-in that goes wrong', () => {
  it.each<[string, Incident, Record<string, string>]>([
    [
      'consent is denied',
      { isDenied: true },
      { error: 'access_denied', error_description: 'The user said no' },
    ],
    [
      'the code is refused',
      refusal({ status: 400, body: { error: 'invalid_grant' } }),
      exchangeFailed(),
    ],
    ['the reply is not JSON', refusal({ body: '<html>sorry</html>' }), exchangeFailed()],
    ['the reply is huge', refusal({ body: 'x'.repeat(2_000_000) }), exchangeFailed()],
    ['the reply never comes', refusal('hang'), exchangeFailed()],
    ['the profile is refused', profileOf({ status: 403, body: {} }), exchangeFailed()],
    ['the profile names nobody', profileOf({ body: { login: 'x' } }), exchangeFailed()],
    ['the profile is a list', profileOf({ body: [] }), exchangeFailed()],
  ])('comes back with an error when %s', async (_name, incident, expected) => {
    const { fragment, query } = await visit(GITHUB, incident)
    expect(fragment).toMatchObject(expected)
    expect(query).toMatchObject(expected)
    const { rows } = await server.database.pool.query('select count(*)::int as n from users')
    expect(rows).toEqual([{ n: 0 }])
  })

  it.each<[string, Record<string, unknown>]>([
    ['for another client', { aud: 'other' }],
    ['of another issuer', { iss: 'https://evil.test' }],
    ['that expired', { exp: 1 }],
    ['of nobody', { sub: '' }],
    ['of another sign-in', { nonce: 'another' }],
    ['of another access token', { at_hash: 'AAAAAAAAAAAAAAAAAAAAAA' }],
  ])('comes back with an error for an id token %s', async (_name, claims) => {
    const { fragment } = await visit(BY_ID.google as ProviderCase, { claims })
    expect(fragment).toMatchObject(exchangeFailed())
  })
})

describe('a state', () => {
  it('is valid once, for one sign-in, for five minutes', async () => {
    world.become(GITHUB)
    const back = await leave('github')
    const changed = new URL(back.url)
    changed.searchParams.set('state', `${changed.searchParams.get('state')?.slice(0, -2)}xx`)
    expect((await arrive({ ...back, url: changed.href })).query.error_code).toBe('bad_oauth_state')
    expect((await arrive(back)).fragment).toHaveProperty('access_token')
    expect((await arrive(back)).query.error_code).toBe('bad_oauth_state')
    const late = await leave('github')
    server.clock.advance(301)
    expect((await arrive(late)).query.error_code).toBe('bad_oauth_state')
  })

  it('of one sign-in does not match the code of another', async () => {
    world.become(GITHUB)
    const [mine, theirs] = [
      new URL((await leave('github')).url),
      new URL((await leave('github')).url),
    ]
    mine.searchParams.set('code', theirs.searchParams.get('code') as string)
    const { fragment } = await arrive({ url: mine.href })
    expect(fragment).toMatchObject(exchangeFailed())
  })
})

interface Landing {
  readonly url: string
  readonly form?: string
}

interface Arrived {
  readonly location: string
  readonly fragment: Record<string, string>
  readonly query: Record<string, string>
}

/** The whole way of a browser: to the provider, through its pages, and back to the application. */
async function visit(row: ProviderCase, incident: Incident = {}): Promise<Arrived> {
  world.become(row, incident)
  return arrive(await leave(row.id))
}

async function leave(id: string): Promise<Landing> {
  const redirectTo = encodeURIComponent(`${SITE}/after`)
  const { status, location } = await server.call({
    path: `/authorize?provider=${id}&redirect_to=${redirectTo}`,
  })
  expect(status).toBe(302)
  const page = await fetch(location, { redirect: 'manual' })
  if (page.status === 302) return { url: page.headers.get('location') as string }
  const html = await page.text()
  const inputs = [...html.matchAll(/<input name="(.*?)" value="(.*?)">/g)]
  const fields = inputs.map(([, name = '', value = '']) => [name, value] as [string, string])
  const [, url = ''] = /action="(.*?)"/.exec(html) ?? []
  return { url, form: new URLSearchParams(fields).toString() }
}

async function arrive({ url, form }: Landing): Promise<Arrived> {
  expect(url.startsWith(CALLBACK), url).toBe(true)
  const path = url.slice('http://localhost:9999'.length)
  const answer: CallResult =
    form === undefined
      ? await server.call({ path })
      : await server.call({
          method: 'POST',
          path,
          body: form,
          headers: { 'content-type': 'application/x-www-form-urlencoded' },
        })
  const { location } = answer
  const target = new URL(location)
  return {
    location,
    fragment: Object.fromEntries(new URLSearchParams(target.hash.slice(1))),
    query: Object.fromEntries(target.searchParams),
  }
}

// biome-ignore lint/suspicious/noExplicitAny: tests read answers of any shape.
async function userOf(fragment: Record<string, string>): Promise<any> {
  expect(fragment).toHaveProperty('access_token')
  const { body } = await server.call({ path: '/user', bearer: fragment.access_token as string })
  return body
}

function providerSettings(url: string): Record<string, string> {
  return Object.fromEntries(
    PROVIDER_IDS.flatMap((id) => {
      const prefix = `AUTH_EXTERNAL_${id.toUpperCase()}`
      return [
        [`${prefix}_ENABLED`, 'true'],
        [`${prefix}_CLIENT_ID`, 'client'],
        [`${prefix}_SECRET`, 'secret'],
        [`${prefix}_REDIRECT_URI`, CALLBACK],
        [`${prefix}_URL`, url],
      ]
    }),
  )
}

function refusal(tokenReply: PeerReply): Incident {
  return { tokenReply }
}

function profileOf(reply: PeerReply): Incident {
  return { profile: { '/api/v3/user': reply } }
}

// The provider's error is only in the log.
function exchangeFailed(): Record<string, string> {
  return {
    error: 'server_error',
    error_code: 'unexpected_failure',
    error_description: expect.stringMatching(/^Unable to exchange external code: [\w-]+$/),
  }
}
