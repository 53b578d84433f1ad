import { TOTP } from 'otpauth'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { replaceRefreshToken } from '#api/auth/sessions/refresh-tokens.ts'

import { whileWaiting } from './support/held-user.ts'
import { createUser, refresh, signedInUser, signIn } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer

beforeAll(async () => {
  server = await startServer({
    isFrozen: true,
    env: {
      AUTH_MFA_MAX_ENROLLED_FACTORS: '3',
      AUTH_MFA_PHONE_ENROLL_ENABLED: 'true',
      AUTH_MFA_PHONE_VERIFY_ENABLED: 'true',
      AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true',
      MILLRACE_OTP_ATTEMPTS_MAX: '3',
      // Here the limits of factors are tested, not those of guesses.
      MILLRACE_FAILURES_PER_ACCOUNT: '1000',
      MILLRACE_FAILURES_PER_NETWORK: '1000',
    },
  })
})

afterAll(() => server.close())

interface Enrolled {
  readonly id: string
  readonly secret: string
}

const post = (path: string, bearer: string, body?: object): Promise<CallResult> =>
  server.call({ method: 'POST', path, bearer, ...(body && { body }) })

async function enroll(bearer: string, friendly_name = ''): Promise<Enrolled> {
  const { status, body } = await post('/factors', bearer, { factor_type: 'totp', friendly_name })
  expect(status, JSON.stringify(body)).toBe(200)
  return { id: body.id, secret: body.totp.secret }
}

const codeOf = (secret: string): string =>
  new TOTP({ secret }).generate({ timestamp: server.clock.now() })

async function prove(bearer: string, factor: Enrolled, code?: string): Promise<CallResult> {
  const challenge = await post(`/factors/${factor.id}/challenge`, bearer)
  return post(`/factors/${factor.id}/verify`, bearer, {
    challenge_id: challenge.body.id,
    code: code ?? codeOf(factor.secret),
  })
}

describe('a second factor', () => {
  it('lifts this session, ends weaker ones, and swaps the refresh token', async () => {
    const { email } = await createUser(server)
    const [session, other] = [await signIn(server, email), await signIn(server, email)]
    const factor = await enroll(session.access_token, 'phone')
    const { status, body } = await prove(session.access_token, factor)
    expect(status).toBe(200)
    const claims = JSON.parse(Buffer.from(body.access_token.split('.')[1], 'base64url').toString())
    expect(claims).toMatchObject({ aal: 'aal2', amr: [{ method: 'totp' }, { method: 'password' }] })
    expect(body.user.factors).toMatchObject([{ status: 'verified', friendly_name: 'phone' }])
    expect(JSON.stringify(body)).not.toContain(factor.secret)
    expect((await server.call({ path: '/user', bearer: other.access_token })).body.error_code).toBe(
      'session_not_found',
    )
    expect((await refresh(server, body.refresh_token)).status).toBe(200)
  })

  it('accepts a sign-in code once, even if many requests send it at the same time', async () => {
    const { email } = await createUser(server)
    const first = await signIn(server, email)
    const factor = await enroll(first.access_token)
    await prove(first.access_token, factor)
    server.clock.advance(30)
    const { access_token: bearer } = await signIn(server, email)
    const tries = await Promise.all([1, 2, 3].map(() => prove(bearer, factor)))
    expect(tries.map((answer) => answer.status).sort()).toEqual([200, 422, 422])
    server.clock.advance(30)
    const later = (await signIn(server, email)).access_token
    expect((await prove(later, factor)).status).toBe(200)
  })

  it('accepts the code of an enrolment once, and once more at the next sign-in', async () => {
    const { email } = await createUser(server)
    const { access_token: bearer } = await signIn(server, email)
    const factor = await enroll(bearer)
    const tries = await Promise.all([1, 2, 3, 4].map(() => prove(bearer, factor)))
    const later = (await signIn(server, email)).access_token
    const again = await Promise.all([1, 2, 3, 4].map(() => prove(later, factor)))
    const accepted = [...tries, ...again].filter((answer) => answer.status === 200)
    expect(accepted).toHaveLength(2)
    server.clock.advance(30)
    expect((await prove(later, factor)).status).toBe(200)
  })

  it('refuses wrong, strange and late answers', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const factor = await enroll(bearer)
    expect((await prove(bearer, factor, '000000')).body).toMatchObject({
      code: 422,
      error_code: 'mfa_verification_failed',
      msg: 'Invalid TOTP code entered',
    })
    const challenge = (await post(`/factors/${factor.id}/challenge`, bearer)).body
    expect(challenge).toMatchObject({ type: 'totp', expires_at: expect.any(Number) })
    const verify = (body: object) => post(`/factors/${factor.id}/verify`, bearer, body)
    const id = challenge.id
    expect((await verify({ challenge_id: id })).body.msg).toBe('Code needs to be non-empty')
    expect((await verify({ challenge_id: 'x', code: '1' })).status).toBe(400)
    const unknown = { challenge_id: '11111111-1111-4111-8111-111111111111', code: '1' }
    expect((await verify(unknown)).body).toMatchObject({ code: 422 })
    for (let guess = 0; guess < 3; guess += 1) await verify({ challenge_id: id, code: '000000' })
    const right = { challenge_id: id, code: codeOf(factor.secret) }
    expect((await verify(right)).body.error_code).toBe('mfa_verification_failed')
    for (const code of ['١٢٣٤٥٦', '１２３４５６', '12345é', '']) {
      expect((await prove(bearer, factor, code)).status).toBe(code === '' ? 400 : 422)
    }
    const late = (await post(`/factors/${factor.id}/challenge`, bearer)).body
    server.clock.advance(300)
    expect((await verify({ challenge_id: late.id, code: '1' })).body.error_code).toBe(
      'mfa_challenge_expired',
    )
  })

  it('belongs to its user, has a unique name, and is of a known kind', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const factor = await enroll(bearer, 'a')
    const add = (body: object) => post('/factors', bearer, body)
    expect((await add({ factor_type: 'totp', friendly_name: 'a' })).body).toMatchObject({
      code: 422,
      error_code: 'mfa_factor_name_conflict',
    })
    expect((await add({ factor_type: 'webauthn' })).body).toMatchObject({
      code: 422,
      error_code: 'mfa_webauthn_enroll_not_enabled',
    })
    expect((await add({ factor_type: 'nose' })).body.msg).toBe(
      'factor_type needs to be totp, phone, or webauthn',
    )
    expect((await add({ factor_type: 'totp', issuer: '漢'.repeat(255) })).body).toMatchObject({
      code: 400,
      msg: 'issuer is too long for a QR code',
    })
    const stranger = (await signedInUser(server)).access_token
    expect((await post(`/factors/${factor.id}/challenge`, stranger)).body).toMatchObject({
      code: 404,
      error_code: 'mfa_factor_not_found',
    })
    expect((await post('/factors/x/challenge', bearer)).body).toMatchObject({
      code: 404,
      msg: 'factor_id must be an UUID',
    })
  })

  it('is limited in number, even if many are enrolled at once', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const answers = await Promise.all(
      ['a', 'b', 'c', 'd', 'e'].map((friendly_name) =>
        post('/factors', bearer, { factor_type: 'totp', friendly_name }),
      ),
    )
    expect(answers.filter((answer) => answer.status === 200)).toHaveLength(3)
    const refused = answers.find((answer) => answer.status === 422)
    expect(refused?.body.error_code).toBe('too_many_enrolled_mfa_factors')
  })

  it('can be enrolled only so often per minute by one user, refused attempts included', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const codes: string[] = []
    for (let tries = 0; tries < 31; tries += 1) {
      const { body } = await post('/factors', bearer, { factor_type: 'totp', friendly_name: 'one' })
      codes.push(body.error_code ?? 'enrolled')
    }
    const conflicts = codes.slice(1, 30).map(() => 'mfa_factor_name_conflict')
    expect(codes).toEqual(['enrolled', ...conflicts, 'over_request_rate_limit'])
    server.clock.advance(60)
    expect((await post('/factors', bearer, { factor_type: 'totp' })).status).toBe(200)
  })

  it('protects itself and the password from sessions without it', async () => {
    const { email } = await createUser(server)
    const first = await signIn(server, email)
    const factor = await enroll(first.access_token)
    const strong = (await prove(first.access_token, factor)).body.access_token
    const { access_token: weak } = await signIn(server, email)
    const unenroll = (bearer: string) =>
      server.call({ method: 'DELETE', path: `/factors/${factor.id}`, bearer })
    expect((await unenroll(weak)).body).toMatchObject({ code: 422, error_code: 'insufficient_aal' })
    expect((await post('/factors', weak, { factor_type: 'totp' })).body).toMatchObject({
      code: 403,
      error_code: 'insufficient_aal',
    })
    const put = { method: 'PUT', path: '/user', body: { password: 'something new' } } as const
    expect((await server.call({ ...put, bearer: weak })).body).toMatchObject({
      code: 401,
      error_code: 'insufficient_aal',
    })
    expect((await server.call({ ...put, bearer: strong })).status).toBe(200)
    expect((await unenroll(strong)).body).toEqual({ id: factor.id })
  })

  it('cannot be guessed by asking for one challenge after another', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const factor = await enroll(bearer)
    const codes: string[] = []
    for (let tries = 0; tries < 31; tries += 1) {
      codes.push((await prove(bearer, factor, 'wrong!')).body.error_code)
    }
    expect(codes.slice(0, 30)).toEqual(codes.slice(0, 30).map(() => 'mfa_verification_failed'))
    expect(codes[30]).toBe('over_request_rate_limit')
    server.clock.advance(60)
    expect((await prove(bearer, factor)).status).toBe(200)
  })

  it('does not admit a banned user', async () => {
    const { email, id } = await createUser(server)
    const { access_token: bearer } = await signIn(server, email)
    const factor = await enroll(bearer)
    const ban = {
      method: 'PUT',
      path: `/admin/users/${id}`,
      body: { ban_duration: '24h' },
    } as const
    await server.call({ ...ban, bearer: await server.serviceToken() })
    const { body } = await prove(bearer, factor)
    expect(body).toMatchObject({ code: 403, error_code: 'user_banned' })
  })

  it('lifts no session that ended while it was proven', async () => {
    const { access_token } = await signedInUser(server)
    const { session_id: id } = JSON.parse(
      Buffer.from(access_token.split('.')[1] ?? '', 'base64url').toString(),
    )
    await post('/logout', access_token)
    await expect(replaceRefreshToken(server.services.store, id)).rejects.toMatchObject({
      code: 'session_not_found',
    })
  })

  it('can be a phone', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const body = { factor_type: 'phone', phone: '+41791112233' }
    const factor = (await post('/factors', bearer, body)).body
    expect(factor).toMatchObject({ type: 'phone', phone: '41791112233' })
    const odd = { channel: 'pigeon' }
    expect((await post(`/factors/${factor.id}/challenge`, bearer, odd)).body).toMatchObject({
      code: 400,
      error_code: 'validation_failed',
    })
    const challenge = (await post(`/factors/${factor.id}/challenge`, bearer)).body
    const code = server.messages.at(-1)?.otp
    const proof = { challenge_id: challenge.id, code }
    const { body: proven } = await post(`/factors/${factor.id}/verify`, bearer, proof)
    expect(proven.user.factors).toMatchObject([{ factor_type: 'phone', status: 'verified' }])
    expect((await post(`/factors/${factor.id}/challenge`, bearer)).body.error_code).toBe(
      'over_sms_send_rate_limit',
    )
  })

  it('sends no more messages when a phone is removed and enrolled again', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const body = { factor_type: 'phone', phone: '+41791112244' }
    const ask = async (): Promise<CallResult> => {
      const { id } = (await post('/factors', bearer, body)).body
      const asked = await post(`/factors/${id}/challenge`, bearer)
      await server.call({ method: 'DELETE', path: `/factors/${id}`, bearer })
      return asked
    }
    expect((await ask()).status).toBe(200)
    expect((await ask()).body.error_code).toBe('over_sms_send_rate_limit')
    server.clock.advance(60)
    expect((await ask()).status).toBe(200)
  })

  it('is void for a number that an administrator has replaced', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const fields = { factor_type: 'phone', phone: '+41791112255' }
    const factor = (await post('/factors', bearer, fields)).body
    const challenge = (await post(`/factors/${factor.id}/challenge`, bearer)).body
    const proof = { challenge_id: challenge.id, code: server.messages.at(-1)?.otp }
    const path = `/admin/users/${user.id}/factors/${factor.id}`
    const change = { method: 'PUT', path, body: { phone: '+41791112266' } } as const
    await server.call({ ...change, bearer: await server.serviceToken() })
    const refused = await post(`/factors/${factor.id}/verify`, bearer, proof)
    expect(refused.body.error_code).toBe('mfa_factor_not_found')
  })

  it('raises no session while an administrator removes it', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const factor = await enroll(bearer, 'removed')
    const path = `/admin/users/${user.id}/factors/${factor.id}`
    const removal = { method: 'DELETE', path, bearer: await server.serviceToken() } as const
    const session = `(select id from sessions where user_id = '${user.id}')`
    const { status } = await whileWaiting(server, user.id, {
      request: () => server.call(removal),
      change: (client) =>
        client.query(
          `update sessions set aal = 'aal2', factor_id = '${factor.id}',
           amr = '[{"method":"totp","timestamp":1}]' where id = ${session}`,
        ),
    })
    expect(status).toBe(200)
    const { rows } = await server.database.pool.query(
      `select aal from sessions where id = ${session}`,
    )
    expect(rows).toEqual([{ aal: 'aal1' }])
  })

  it('cannot bypass the factor of the owner, however early it was added', async () => {
    const { email } = await createUser(server)
    const stranger = await signIn(server, email)
    const fields = { factor_type: 'phone', friendly_name: 'planted', phone: '+491701234567' }
    const planted = await post('/factors', stranger.access_token, fields)
    const owner = await signIn(server, email)
    const own = await prove(owner.access_token, await enroll(owner.access_token, 'own'))
    expect(own.status).toBe(200)
    const again = await signIn(server, email)
    const challenge = await post(`/factors/${planted.body.id}/challenge`, again.access_token)
    const answer = { challenge_id: challenge.body.id, code: server.messages.at(-1)?.otp }
    const path = `/factors/${planted.body.id}/verify`
    const refused = await post(path, again.access_token, answer)
    expect([refused.status, refused.body.error_code]).toEqual([403, 'insufficient_aal'])
    // The owner may: it is one more of theirs.
    expect((await post(path, own.body.access_token, answer)).status).toBe(200)
  })

  it('is refused to anonymous users', async () => {
    const { body } = await server.call({ method: 'POST', path: '/signup', body: {} })
    expect((await post('/factors', body.access_token, { factor_type: 'totp' })).body).toMatchObject(
      {
        code: 403,
        error_code: 'no_authorization',
      },
    )
  })
})
