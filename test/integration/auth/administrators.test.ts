import { eq } from 'drizzle-orm'
import { TOTP } from 'otpauth'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { isAdmin } from '#api/auth/guards.ts'
import { administratorsOf } from '#api/server/administrators.ts'

import { createUser, PASSWORD, signIn } from './support/people.ts'
import { signToken, startServer, type TestServer } from './support/server.ts'

let server: TestServer

beforeAll(async () => {
  server = await startServer({})
})

afterAll(() => server.close())

const asService = async (method: 'PUT' | 'DELETE', id: string, body: object = {}) => {
  const bearer = await server.serviceToken()
  const answer = await server.call({ method, path: `/admin/users/${id}`, bearer, body })
  expect(answer.status).toBe(200)
}
const administer = (bearer: string) => server.call({ path: '/admin/users', bearer })

describe('the access token of an administrator', () => {
  it.each([
    [
      'has signed out',
      'session_not_found',
      (_id: string, bearer: string) => server.call({ method: 'POST', path: '/logout', bearer }),
    ],
    ['is banned', 'user_banned', (id: string) => asService('PUT', id, { ban_duration: '1h' })],
    [
      'was deleted and kept in name',
      'user_not_found',
      (id: string) => asService('DELETE', id, { should_soft_delete: true }),
    ],
    ['was deleted', 'user_not_found', (id: string) => asService('DELETE', id)],
    [
      'is not an administrator any more',
      'not_admin',
      (id: string) => asService('PUT', id, { role: 'user' }),
    ],
    [
      'was given another password by somebody else',
      'session_not_found',
      (id: string) => asService('PUT', id, { password: 'another password' }),
    ],
  ] as const)('administers nothing when the user %s', async (_title, code, happen) => {
    const { id, email } = await createUser(server, { role: 'service_role' })
    const { access_token: bearer } = await signIn(server, email)
    expect((await administer(bearer)).status).toBe(200)
    await happen(id, bearer)
    const refused = await administer(bearer)
    expect(refused.body).toMatchObject({ code: 403, error_code: code })
    // The administration pages ask in these words.
    const claims = await server.services.accessTokens.verify(bearer)
    expect(await isAdmin(server.services, claims)).toBe(false)
    const invited = await server.call({
      method: 'POST',
      path: '/invite',
      bearer,
      body: { email: `by.${email}` },
    })
    expect(invited.body).toMatchObject({ code: 403, error_code: code })
  })

  it('needs the second factor of an administrator who has one', async () => {
    const { email } = await createUser(server, { role: 'service_role' })
    const { access_token: bearer } = await signIn(server, email)
    const post = (path: string, body: object) => server.call({ method: 'POST', path, bearer, body })
    const { id, totp } = (await post('/factors', { factor_type: 'totp' })).body
    expect((await administer(bearer)).status).toBe(200)
    const { body: challenge } = await post(`/factors/${id}/challenge`, {})
    const code = new TOTP({ secret: totp.secret }).generate()
    const proven = await post(`/factors/${id}/verify`, { challenge_id: challenge.id, code })
    expect((await administer(proven.body.access_token)).status).toBe(200)
    const { access_token: weak } = await signIn(server, email)
    expect((await administer(weak)).body).toMatchObject({
      code: 403,
      error_code: 'insufficient_aal',
    })
  })

  it('may be a key without a user', async () => {
    const nil = '00000000-0000-0000-0000-000000000000'
    for (const claims of [
      { role: 'service_role' },
      { role: 'supabase_admin', sub: '1234567890' },
      { role: 'service_role', sub: '', session_id: '' },
      { role: 'service_role', session_id: nil },
    ]) {
      const bearer = await signToken(server.services.config, claims)
      expect((await administer(bearer)).status).toBe(200)
    }
  })
})

describe('an administrator of the pages', () => {
  const seek = async (email: string, password = PASSWORD) => {
    // Only the address and the browser's name are read of it.
    const request = { headers: {}, ip: '192.0.2.1', id: 'r', query: {}, body: {} }
    const { checkPassword, roleNow } = administratorsOf(server.services)
    const credentials = { email, password, code: '' }
    const verdict = await checkPassword(credentials, request as never)
    return {
      verdict,
      isStill: async () =>
        verdict.kind === 'administrator' && (await roleNow(verdict)) === 'administrator',
    }
  }

  it('signs in again after every change of the password, and not otherwise', async () => {
    const { id, email } = await createUser(server, { role: 'service_role' })
    const first = await seek(email)
    expect(await first.isStill()).toBe(true)
    await asService('PUT', id, { user_metadata: { nickname: 'x' } })
    // Signing in elsewhere changes nothing.
    const { access_token: bearer } = await signIn(server, email)
    expect(await first.isStill()).toBe(true)
    const password = 'a password of my own'
    await server.call({ method: 'PUT', path: '/user', bearer, body: { password } })
    expect(await first.isStill()).toBe(false)
    expect((await seek(email)).verdict).toMatchObject({ kind: 'refused', status: 401 })
    const second = await seek(email, password)
    expect(await second.isStill()).toBe(true)
    await asService('PUT', id, { password: 'a password given by another' })
    expect(await second.isStill()).toBe(false)
  })

  it('signs in again when the sessions of the account end', async () => {
    const { email } = await createUser(server, { role: 'service_role' })
    const { access_token: bearer } = await signIn(server, email)
    const ended = await seek(email)
    const logout = (scope: string) =>
      server.call({ method: 'POST', path: `/logout?scope=${scope}`, bearer })
    expect((await logout('local')).status).toBe(204)
    expect(await ended.isStill()).toBe(true)
    const other = await signIn(server, email)
    await server.call({ method: 'POST', path: '/logout', bearer: other.access_token })
    expect(await ended.isStill()).toBe(false)
  })

  it('leaves no session behind after a refusal or a sign-out', async () => {
    const numSessions = async (userId: string) => {
      const { db, tables } = server.services.store
      const { sessions } = tables
      return (await db.select().from(sessions).where(eq(sessions.userId, userId))).length
    }
    const person = await createUser(server)
    expect((await seek(person.email)).verdict).toMatchObject({ kind: 'refused', status: 403 })
    expect(await numSessions(person.id)).toBe(0)
    const { id, email } = await createUser(server, { role: 'service_role' })
    const { verdict } = await seek(email)
    if (verdict.kind !== 'administrator') throw new Error('the administrator is not signed in')
    expect(await numSessions(id)).toBe(1)
    await administratorsOf(server.services).endSession(verdict)
    expect(await numSessions(id)).toBe(0)
  })

  it('excludes a session whose password was never recorded', async () => {
    const { id } = await createUser(server, { role: 'service_role' })
    const { roleNow } = administratorsOf(server.services)
    expect(await roleNow({ userId: id, name: 'x' })).toBe(undefined)
  })
})
