import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, newEmail, PASSWORD } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

const BAD_CODE = { code: 403, error_code: 'otp_expired', msg: 'Token has expired or is invalid' }

let server: TestServer

beforeAll(async () => {
  server = await startServer({
    isFrozen: true,
    env: { AUTH_MAILER_OTP_EXP: '3600', MILLRACE_OTP_ATTEMPTS_MAX: '3' },
  })
})

afterAll(() => server.close())

describe('one-time tokens', () => {
  it('are redeemed once if a link is clicked twenty times at once', async () => {
    const email = await askForRecovery()
    const { tokenHash } = server.lastMail(email).variables
    const clicks = await Promise.all(
      Array.from({ length: 20 }, () =>
        server.call({ path: `/verify?type=recovery&token=${tokenHash}` }),
      ),
    )
    expect(clicks.filter((click) => click.location.includes('access_token='))).toHaveLength(1)
    expect(clicks.filter((click) => click.location.includes('otp_expired'))).toHaveLength(19)
  })

  it.each([
    ['http://localhost:3000/ünter', 'http://localhost:3000/%C3%BCnter'],
    ['http://localhost:3000/日本?q=語', 'http://localhost:3000/%E6%97%A5%E6%9C%AC?q=%E8%AA%9E'],
    ['http://localhost:3000/a%20b?q=%C3%BC', 'http://localhost:3000/a%20b?q=%C3%BC'],
  ])('lead to %s, whatever its letters', async (target, address) => {
    const email = await askForRecovery()
    const { tokenHash } = server.lastMail(email).variables
    const to = `redirect_to=${encodeURIComponent(target)}`
    const click = () => server.call({ path: `/verify?type=recovery&token=${tokenHash}&${to}` })
    const first = await click()
    expect([first.status, first.location.split('#')[0]]).toEqual([303, address])
    expect(first.location).toContain('#access_token=')
    expect((await click()).location).toMatch(/#error=access_denied&error_code=otp_expired/)
  })

  it('are redeemed once if a code is typed three times at once', async () => {
    const email = await askForRecovery()
    const { token } = server.lastMail(email).variables
    const tries = await Promise.all(Array.from({ length: 3 }, () => type(email, token)))
    expect(tries.map((answer) => answer.status).sort()).toEqual([200, 403, 403])
  })

  it('that end in a PKCE code give no access to a user who was banned after they were sent', async () => {
    const verifier = 'v'.repeat(43)
    const bearer = await server.serviceToken()
    const bans = [
      { method: 'PUT', body: { ban_duration: '24h' } },
      { method: 'DELETE', body: { should_soft_delete: true } },
    ] as const
    for (const ban of bans) {
      const { id, email } = await createUser(server)
      const pkce = { code_challenge: verifier, code_challenge_method: 'plain' }
      await server.call({ method: 'POST', path: '/recover', body: { email, ...pkce } })
      const { tokenHash } = server.lastMail(email).variables
      const { location } = await server.call({ path: `/verify?type=recovery&token=${tokenHash}` })
      await server.call({ ...ban, path: `/admin/users/${id}`, bearer })
      const body = {
        auth_code: new URL(location).searchParams.get('code'),
        code_verifier: verifier,
      }
      const answer = await server.call({ method: 'POST', path: '/token?grant_type=pkce', body })
      expect(answer.body).toMatchObject({ code: 403, error_code: 'user_banned' })
    }
  })

  it('are void as a code after too many wrong guesses, and still valid as a link', async () => {
    const email = await askForRecovery()
    const { token, tokenHash } = server.lastMail(email).variables
    const wrong = token === '000000' ? '000001' : '000000'
    const guesses = await Promise.all(Array.from({ length: 5 }, () => type(email, wrong)))
    for (const guess of guesses) expect(guess.body).toEqual(BAD_CODE)
    expect((await type(email, token)).body).toEqual(BAD_CODE)
    const body = { type: 'recovery', token_hash: tokenHash }
    expect((await server.call({ method: 'POST', path: '/verify', body })).status).toBe(200)
  })

  it('expire', async () => {
    const email = await askForRecovery()
    const { token, tokenHash } = server.lastMail(email).variables
    server.clock.advance(3600)
    expect((await type(email, token)).body).toEqual(BAD_CODE)
    const link = await server.call({ path: `/verify?type=recovery&token=${tokenHash}` })
    expect(link.location).toContain('error_code=otp_expired')
  })

  it('are void when a newer one of their kind was sent', async () => {
    const email = await askForRecovery()
    const first = server.lastMail(email).variables
    server.clock.advance(60)
    await server.call({ method: 'POST', path: '/recover', body: { email } })
    const second = server.lastMail(email).variables
    expect(second.tokenHash).not.toBe(first.tokenHash)
    const old = await server.call({ path: `/verify?type=recovery&token=${first.tokenHash}` })
    expect(old.location).toContain('otp_expired')
    expect((await type(email, second.token)).status).toBe(200)
  })

  it('answer unknown users like wrong codes, and serve no other purpose than theirs', async () => {
    expect((await type(newEmail(), '123456')).body).toEqual(BAD_CODE)
    const email = await askForRecovery()
    const { token, tokenHash } = server.lastMail(email).variables
    const verify = (body: object) => server.call({ method: 'POST', path: '/verify', body })
    expect((await verify({ type: 'signup', email, token })).body).toEqual(BAD_CODE)
    expect((await verify({ type: 'invite', token_hash: tokenHash })).body).toMatchObject({
      msg: 'Email link is invalid or has expired',
    })
    const other = await createUser(server)
    expect((await verify({ type: 'recovery', email: other.email, token })).body).toEqual(BAD_CODE)
  })

  it('are stored as hashes only', async () => {
    const email = await askForRecovery()
    const { token, tokenHash } = server.lastMail(email).variables
    const { rows } = await server.database.pool.query('select * from one_time_tokens')
    const stored = rows.map((row) =>
      Object.values(row).map((value) =>
        Buffer.isBuffer(value) ? value.toString('latin1') + value.toString('hex') : String(value),
      ),
    )
    expect(JSON.stringify(stored)).not.toContain(tokenHash)
    expect(stored.flat().some((value) => value.includes(token))).toBe(false)
  })

  it('are sent for valid requests, which are otherwise refused with the reason', async () => {
    const cases: readonly (readonly [object, string])[] = [
      [{ token: '1', email: 'a@b.c' }, 'Verify requires a verification type'],
      [{ type: 'signup' }, 'Verify requires either a token or a token hash'],
      [
        { type: 'signup', token: '1', token_hash: '2' },
        'Verify requires either a token or a token hash',
      ],
      [
        { type: 'signup', token: '123456' },
        'Only an email address or phone number should be provided on verify',
      ],
      [
        { type: 'signup', token_hash: 'x', email: 'a@b.c' },
        'Only the token_hash and type should be provided',
      ],
      [{ type: 'constructor', token_hash: 'x' }, 'Unsupported verification type "constructor"'],
    ]
    for (const [body, msg] of cases) {
      const answer = await server.call({ method: 'POST', path: '/verify', body })
      expect(answer.body).toEqual({ code: 400, error_code: 'validation_failed', msg })
    }
    expect((await server.call({ path: '/verify' })).body).toMatchObject({
      code: 400,
      msg: 'Verify requires a token or a token hash',
    })
    expect((await server.call({ path: '/verify?token=x' })).body).toMatchObject({
      code: 400,
      msg: 'Verify requires a verification type',
    })
  })
})

describe('an invitation', () => {
  it('is accepted with the token alone, and may set a password', async () => {
    const email = newEmail('invited')
    const bearer = await server.serviceToken()
    const invited = await server.call({ method: 'POST', path: '/invite', bearer, body: { email } })
    expect(invited.body).toMatchObject({ email, invited_at: expect.any(String) })
    const { tokenHash: token } = server.lastMail(email).variables
    const body = { type: 'invite', token, password: PASSWORD }
    const accepted = await server.call({ method: 'POST', path: '/verify', body })
    expect(accepted.body).toMatchObject({ type: 'invite', token_type: 'bearer' })
    const signedIn = await server.call({
      method: 'POST',
      path: '/token?grant_type=password',
      body: { email, password: PASSWORD },
    })
    expect(signedIn.status).toBe(200)
    expect(
      (await server.call({ method: 'POST', path: '/invite', bearer, body: { email } })).body,
    ).toMatchObject({ code: 422, error_code: 'email_exists' })
  })

  it('keeps nothing of an earlier sign-up with the address', async () => {
    const bearer = await server.serviceToken()
    const ways = [
      { path: '/invite', body: { data: { team: 'a' } } },
      { path: '/admin/generate_link', body: { type: 'invite', data: { team: 'a' } } },
    ]
    for (const { path, body } of ways) {
      const email = newEmail('taken')
      const credentials = { email, password: PASSWORD }
      await server.call({ method: 'POST', path: '/signup', body: credentials })
      const call = { method: 'POST', path, bearer, body: { email, ...body } } as const
      const invited = (await server.call(call)).body
      expect(invited.user_metadata).toMatchObject({ team: 'a' })
      const token = invited.hashed_token ?? server.lastMail(email).variables.tokenHash
      const accept = { method: 'POST', path: '/verify', body: { type: 'invite', token } } as const
      expect((await server.call(accept)).status).toBe(200)
      const signIn = { path: '/token?grant_type=password', body: credentials }
      expect((await server.call({ method: 'POST', ...signIn })).body).toMatchObject({
        error_code: 'invalid_credentials',
      })
    }
  })

  it('can be created only by administrators', async () => {
    const bearer = await server.serviceToken('authenticated')
    const body = { email: newEmail() }
    expect(
      (await server.call({ method: 'POST', path: '/invite', bearer, body })).body,
    ).toMatchObject({ code: 403, error_code: 'not_admin', msg: 'User not allowed' })
  })
})

async function askForRecovery(): Promise<string> {
  const { email } = await createUser(server)
  const asked = await server.call({ method: 'POST', path: '/recover', body: { email } })
  expect(asked.status).toBe(200)
  return email
}

function type(email: string, token: string): Promise<CallResult> {
  return server.call({ method: 'POST', path: '/verify', body: { type: 'recovery', email, token } })
}
