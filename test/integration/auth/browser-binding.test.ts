import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { newEmail } from './support/people.ts'
import { startServer, type TestServer } from './support/server.ts'

const HOST = { host: 'localhost:9999' }
const BROWSER = { ...HOST, 'sec-fetch-mode': 'navigate' }
const providers = fakeProviders()
let server: TestServer

beforeAll(async () => {
  server = await startServer({
    providers,
    env: {
      AUTH_EXTERNAL_GITHUB_REDIRECT_URI: 'http://localhost:9999/callback',
      AUTH_EXTERNAL_GOOGLE_REDIRECT_URI: 'https://elsewhere.test/callback',
    },
  })
})
afterAll(() => server.close())

/** Leaves for the provider; returns the browser's new cookies and the state. */
async function leave(
  query: string,
  headers: Record<string, string> = BROWSER,
): Promise<{ cookie: string; attributes: string; state: string }> {
  const {
    headers: answered,
    location,
    body,
  } = await server.call({
    path: `/authorize?${query}`,
    headers,
  })
  const [cookie = '', ...attributes] = (answered['set-cookie'] ?? '').split('; ')
  const state = new URL(location || body.url).searchParams.get('state') ?? ''
  return { cookie, attributes: attributes.join('; '), state }
}

let visits = 0
async function arrive(
  state: string,
  headers: Record<string, string>,
): Promise<Record<string, string>> {
  visits += 1
  const code = `code-${visits}`
  providers.visitors.set(code, visitor(`visitor-${visits}`, newEmail()))
  const path = `/callback?code=${code}&state=${state}`
  const { location } = await server.call({ path, headers })
  return Object.fromEntries(new URLSearchParams(new URL(location).hash.slice(1)))
}

describe('a sign-in that a browser began', () => {
  it('ends in that browser', async () => {
    const { cookie, attributes, state } = await leave('provider=github')
    expect(cookie).toMatch(/^millrace_oauth=[\w-]{22}$/)
    expect(attributes).toBe('Path=/; HttpOnly; Max-Age=600; SameSite=Lax')
    const fragment = await arrive(state, { ...BROWSER, cookie: `theme=dark; ${cookie}` })
    expect(fragment).toHaveProperty('access_token')
  })

  it('signs no other browser in: a link cannot start a session of another account', async () => {
    const { state } = await leave('provider=github')
    const { cookie: victims } = await leave('provider=github')
    for (const headers of [BROWSER, { ...BROWSER, cookie: victims }]) {
      expect(await arrive(state, headers)).toMatchObject({ error_code: 'bad_oauth_state' })
    }
  })

  it('does not affect the sign-in of another tab', async () => {
    const first = await leave('provider=github')
    const headers = { ...BROWSER, cookie: first.cookie }
    const second = await leave('provider=github', headers)
    expect(second.cookie).toBe(first.cookie)
    expect(await arrive(first.state, headers)).toHaveProperty('access_token')
    expect(await arrive(second.state, headers)).toHaveProperty('access_token')
  })

  it('accepts no secret from a cookie that it has not written', async () => {
    const forged = 'millrace_oauth="x; Domain=evil.test"'
    const { cookie } = await leave('provider=github', { ...BROWSER, cookie: forged })
    expect(cookie).toMatch(/^millrace_oauth=[\w-]{22}$/)
  })
})

describe('no cookie is asked for', () => {
  const challenge = `code_challenge=${'a'.repeat(43)}&code_challenge_method=plain`
  it.each([
    ['when the provider leads to another host', 'provider=google'],
    ['when the verifier of PKCE binds the sign-in', `provider=github&${challenge}`],
  ])('%s', async (_name, query) => {
    const { cookie, state } = await leave(query)
    expect(cookie).toBe('')
    expect(state).not.toContain('.')
  })

  it('of a program that follows the redirects itself', async () => {
    const { state } = await leave('provider=github', HOST)
    expect(await arrive(state, HOST)).toHaveProperty('access_token')
  })
})
