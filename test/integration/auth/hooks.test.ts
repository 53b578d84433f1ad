import { TOTP } from 'otpauth'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { type HookReceiver, startHookReceiver } from './support/hook-receiver.ts'
import { createUser, newEmail, PASSWORD, refresh, signIn } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let receiver: HookReceiver
let server: TestServer
const providers = fakeProviders()

const ALL = [
  ...['CUSTOM_ACCESS_TOKEN', 'SEND_EMAIL', 'SEND_SMS', 'PASSWORD_VERIFICATION_ATTEMPT'],
  ...['MFA_VERIFICATION_ATTEMPT', 'BEFORE_USER_CREATED', 'AFTER_USER_CREATED'],
]
const PASS_ON = ({ payload }: { payload: unknown }) => ({ body: payload })

beforeAll(async () => {
  receiver = await startHookReceiver()
  server = await startServer({
    providers,
    env: {
      ...receiver.settings(...ALL),
      AUTH_SMTP_MAX_FREQUENCY: '0',
      AUTH_SMS_MAX_FREQUENCY: '0',
      AUTH_EXTERNAL_PHONE_ENABLED: 'true',
      AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true',
      AUTH_MFA_PHONE_ENROLL_ENABLED: 'true',
      AUTH_MFA_PHONE_VERIFY_ENABLED: 'true',
    },
    // The hook needs no gateway.
    sms: {
      send: () => Promise.reject(new Error('no gateway')),
      requireGateway: () => {
        throw new Error('no gateway')
      },
      testOtp: () => undefined,
    },
  })
})
beforeEach(() => {
  receiver.calls.length = 0
  receiver.answers.clear()
  receiver.answers.set('CUSTOM_ACCESS_TOKEN', PASS_ON)
})
afterAll(async () => {
  await server.close()
  await receiver.stop()
})

const post = (path: string, body: object, bearer?: string): Promise<CallResult> =>
  server.call({ method: 'POST', path, body, ...(bearer !== undefined && { bearer }) })
const claimsOf = (accessToken: string) =>
  JSON.parse(Buffer.from(accessToken.split('.')[1] ?? '', 'base64url').toString())
const refuseWith = (http_code: number, message: string) => () => ({
  body: { error: { http_code, message } },
})
const count = async (table: string, condition: string, value: string): Promise<number> => {
  const sql = `select count(*)::int as n from ${table} where ${condition}`
  return (await server.database.pool.query(sql, [value])).rows[0].n
}
const usersWith = (email: string) => count('users', 'email = $1', email)
const sessionsOf = (userId: string) => count('sessions', 'user_id = $1', userId)
const TOKENS = 'CUSTOM_ACCESS_TOKEN'

describe('the custom access token hook', () => {
  it('decides about the claims, and gets the method of the sign-in', async () => {
    receiver.answers.set(TOKENS, ({ payload }) => ({
      body: { claims: { ...payload.claims, plan: 'gold', exp: payload.claims.iat + 60 } },
    }))
    const { email, id } = await createUser(server)
    const session = await signIn(server, email)
    expect(claimsOf(session.access_token)).toMatchObject({ sub: id, plan: 'gold', email })
    expect(session).toMatchObject({ expires_in: 60 })
    const next = await refresh(server, session.refresh_token)
    expect(claimsOf(next.body.access_token)).toMatchObject({ plan: 'gold' })
    const payloads = receiver.payloads(TOKENS)
    expect(payloads.map((payload) => payload.authentication_method)).toEqual([
      'password',
      'token_refresh',
    ])
    expect(payloads[0]).toMatchObject({ user_id: id, claims: { aal: 'aal1', sub: id } })
    expect((await server.call({ path: '/user', bearer: next.body.access_token })).status).toBe(200)
  })

  it('that fails leaves no session and keeps the refresh token valid', async () => {
    const { email, id } = await createUser(server)
    const session = await signIn(server, email)
    receiver.answers.set(TOKENS, refuseWith(403, 'Not today'))
    const body = { email, password: PASSWORD }
    expect((await post('/token?grant_type=password', body)).body).toMatchObject({
      code: 403,
      error_code: 'unknown',
      msg: 'Not today',
    })
    expect((await refresh(server, session.refresh_token)).status).toBe(403)
    expect(await sessionsOf(id)).toBe(1)
    receiver.answers.set(TOKENS, PASS_ON)
    expect((await refresh(server, session.refresh_token)).status).toBe(200)
  })

  it.each([
    ['{}', 'output claims field is missing'],
    ['{"claims":[]}', 'Error unmarshaling JSON output.'],
    ['{"claims":{"sub":1}}', '- (root): aud is required'],
    ['{"claims":{"sub":1}}', '- sub: Invalid type. Expected: string, given: integer'],
  ])('that answers %s is refused: %s', async (answer, message) => {
    const { email } = await createUser(server)
    receiver.answers.set(TOKENS, () => ({ body: JSON.parse(answer) }))
    const { status, body } = await post('/token?grant_type=password', { email, password: PASSWORD })
    expect([status, body.error_code]).toEqual([500, 'unexpected_failure'])
    expect(body.msg).toContain(message)
  })
})

describe('the password hook', () => {
  const HOOK = 'PASSWORD_VERIFICATION_ATTEMPT'
  const attempt = (email: string, password: string) =>
    post('/token?grant_type=password', { email, password })

  it('is asked about right and wrong passwords of known users', async () => {
    const { email, id } = await createUser(server)
    await attempt(newEmail(), PASSWORD)
    await attempt(email, 'wrong')
    expect((await attempt(email, PASSWORD)).status).toBe(200)
    expect(receiver.payloads(HOOK)).toEqual([
      { user_id: id, valid: false },
      { user_id: id, valid: true },
    ])
  })

  it('rejects a right password, and may end the sessions', async () => {
    const { email, id } = await createUser(server)
    await signIn(server, email)
    receiver.answers.set(HOOK, () => ({ body: { decision: 'reject', message: 'Come later' } }))
    const refused = { code: 400, error_code: 'invalid_credentials' }
    expect((await attempt(email, PASSWORD)).body).toMatchObject({ ...refused, msg: 'Come later' })
    expect(await sessionsOf(id)).toBe(1)
    const answer = { decision: 'reject', should_logout_user: true }
    receiver.answers.set(HOOK, () => ({ body: answer }))
    expect((await attempt(email, 'wrong')).body).toMatchObject({
      ...refused,
      msg: 'Further password verification attempts will be rejected.',
    })
    expect(await sessionsOf(id)).toBe(0)
    expect(server.events.filter((event) => event === 'hook_rejected')).toHaveLength(2)
    receiver.answers.set(HOOK, () => ({ status: 500, body: {} }))
    expect((await attempt(email, PASSWORD)).status).toBe(500)
    expect(await sessionsOf(id)).toBe(0)
  })
})

describe('the hook of second factors', () => {
  const HOOK = 'MFA_VERIFICATION_ATTEMPT'

  it('is asked about right and wrong codes, and its rejection ends the sessions', async () => {
    const { email, id } = await createUser(server)
    const { access_token: bearer } = await signIn(server, email)
    const factor = (await post('/factors', { factor_type: 'totp' }, bearer)).body
    const prove = async (code: string) => {
      const challenge = await post(`/factors/${factor.id}/challenge`, {}, bearer)
      const body = { challenge_id: challenge.body.id, code }
      return post(`/factors/${factor.id}/verify`, body, bearer)
    }
    expect((await prove('000000')).body.error_code).toBe('mfa_verification_failed')
    const code = new TOTP({ secret: factor.totp.secret }).generate({
      timestamp: server.clock.now(),
    })
    receiver.answers.set(TOKENS, refuseWith(503, 'No claims'))
    expect((await prove(code)).body).toMatchObject({ code: 503, msg: 'No claims' })
    expect(receiver.payloads(TOKENS).at(-1)).toMatchObject({
      authentication_method: 'totp',
      claims: { aal: 'aal2' },
    })
    receiver.answers.set(TOKENS, PASS_ON)
    receiver.answers.set(HOOK, () => ({ body: { decision: 'reject' } }))
    expect((await prove(code)).body).toMatchObject({
      code: 403,
      error_code: 'mfa_verification_rejected',
      msg: 'Further MFA verification attempts will be rejected.',
    })
    const about = { user_id: id, factor_id: factor.id, factor_type: 'totp' }
    expect(receiver.payloads(HOOK)).toEqual([
      { ...about, valid: false },
      { ...about, valid: true },
      { ...about, valid: true },
    ])
    expect(await sessionsOf(id)).toBe(0)
    expect(await count('mfa_factors', "status = 'verified' and user_id = $1", id)).toBe(0)
  })
})

describe('the hooks of new users', () => {
  const [BEFORE, AFTER] = ['BEFORE_USER_CREATED', 'AFTER_USER_CREATED']
  const WAYS: readonly (readonly [string, (email: string) => Promise<CallResult>])[] = [
    ['sign-up', (email) => post('/signup', { email, password: PASSWORD, data: { a: 1 } })],
    ['one-time password', (email) => post('/otp', { email })],
    ['invitation', async (email) => post('/invite', { email }, await server.serviceToken())],
    [
      'generated link',
      async (email) => {
        const body = { type: 'signup', email, password: PASSWORD }
        return post('/admin/generate_link', body, await server.serviceToken())
      },
    ],
    [
      'provider',
      (email) => {
        providers.visitors.set(email, visitor(email, email))
        return post('/token?grant_type=id_token', { provider: 'github', id_token: email })
      },
    ],
  ]

  it.each(WAYS)('decide about a user who comes by %s', async (_way, come) => {
    const email = newEmail()
    receiver.answers.set(BEFORE, refuseWith(422, 'Not in this town'))
    expect((await come(email)).body).toMatchObject({ code: 422, msg: 'Not in this town' })
    expect(await usersWith(email)).toBe(0)
    expect(receiver.payloads(AFTER)).toEqual([])
    expect(server.events.at(-1)).toBe('hook_rejected')
    receiver.answers.delete(BEFORE)
    expect((await come(email)).status).toBe(200)
    const [, asked] = receiver.payloads(BEFORE)
    const [announced] = receiver.payloads(AFTER)
    const { rows } = await server.database.pool.query('select id from users where email = $1', [
      email,
    ])
    expect([asked.user.id, announced.user.id]).toEqual([rows[0].id, rows[0].id])
    expect(asked.metadata).toMatchObject({ name: 'before-user-created', ip_address: '127.0.0.1' })
    expect(announced.metadata).toMatchObject({
      name: 'after-user-created',
      ip_address: '127.0.0.1',
    })
    expect(asked.user).toMatchObject({ email, identities: [], is_anonymous: false })
    receiver.calls.length = 0
    await come(email)
    expect(receiver.payloads(BEFORE)).toEqual([])
  })

  it('decide about anonymous users', async () => {
    receiver.answers.set(BEFORE, refuseWith(403, 'Say who you are'))
    expect((await post('/signup', { data: { a: 1 } })).status).toBe(403)
    expect(receiver.payloads(BEFORE)[0].user).toMatchObject({
      email: '',
      is_anonymous: true,
      app_metadata: {},
      user_metadata: { a: 1 },
    })
    receiver.answers.delete(BEFORE)
    expect((await post('/signup', {})).body.user.id).toBe(receiver.payloads(BEFORE)[1].user.id)
    expect(receiver.payloads(AFTER)).toHaveLength(1)
  })

  it('announce a user again when the receiver was not there', async () => {
    receiver.answers.set(AFTER, () => ({ status: 500, body: {} }))
    const email = newEmail()
    expect((await post('/signup', { email, password: PASSWORD })).status).toBe(200)
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 1, failing: 1 })
    receiver.answers.delete(AFTER)
    server.clock.advance(10)
    server.services.outbox.start()
    await server.services.outbox.idle()
    const calls = receiver.calls.filter(({ hook }) => hook === AFTER)
    expect(calls.map(({ payload }) => payload.user.email)).toEqual([email, email])
    const [first, second] = calls.map(({ request }) => request.headers['webhook-id'])
    expect(first).toBe(second)
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 0 })
  })
})

describe('the hook of mails', () => {
  const HOOK = 'SEND_EMAIL'
  const confirm = (token_hash: string, type: string) => post('/verify', { token_hash, type })

  it('receives the content of a mail, in place of the mail server', async () => {
    const email = newEmail()
    const path = '/signup?redirect_to=http%3A%2F%2Flocalhost%3A3000%2Fafter'
    await post(path, { email, password: PASSWORD, data: { name: 'Ada' } })
    const [{ user, email_data: mail }] = receiver.payloads(HOOK)
    expect(user).toMatchObject({ email, user_metadata: { name: 'Ada' } })
    expect(mail).toEqual({
      token: expect.stringMatching(/^\d{6}$/),
      token_hash: expect.any(String),
      redirect_to: 'http://localhost:3000/after',
      email_action_type: 'signup',
      site_url: 'http://localhost:9999',
      token_new: '',
      token_hash_new: '',
    })
    expect(server.mails).toEqual([])
    expect((await confirm(mail.token_hash, 'signup')).status).toBe(200)
    await post('/recover', { email })
    expect(receiver.payloads(HOOK)[1].email_data.email_action_type).toBe('recovery')
  })

  it('gets both tokens of a change of address in one call', async () => {
    const { email } = await createUser(server)
    const { access_token: bearer } = await signIn(server, email)
    const next = newEmail()
    await server.call({ method: 'PUT', path: '/user', bearer, body: { email: next } })
    const [{ user, email_data: mail }] = receiver.payloads(HOOK)
    expect(receiver.payloads(HOOK)).toHaveLength(1)
    expect(user).toMatchObject({ email, new_email: next })
    expect(mail.email_action_type).toBe('email_change')
    const code = { type: 'email_change', email, token: mail.token }
    expect((await post('/verify', code)).body).toMatchObject({ code: '200' })
    expect((await confirm(mail.token_hash, 'email_change')).body.user.email).toBe(next)
    expect(mail.token_hash_new).not.toBe('')
  })

  it('drops a mail that it refuses, and repeats one after a failure', async () => {
    receiver.answers.set(HOOK, refuseWith(422, 'Blocked address'))
    expect((await post('/otp', { email: newEmail() })).status).toBe(200)
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 0 })
    receiver.answers.set(HOOK, refuseWith(500, 'Broken'))
    expect((await post('/otp', { email: newEmail() })).status).toBe(200)
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 1, failing: 1 })
    receiver.answers.delete(HOOK)
    server.clock.advance(10)
    await post('/otp', { email: newEmail() })
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 0 })
    expect(receiver.payloads(HOOK)).toHaveLength(4)
  })
})

describe('the hook of text messages', () => {
  const HOOK = 'SEND_SMS'

  it('gets the code and the number, in place of a gateway', async () => {
    const phone = `4477009${String(Date.now()).slice(-5)}`
    const { body } = await post('/otp', { phone: `+${phone}` })
    expect(body).toEqual({ message_id: expect.any(String) })
    const [{ user, sms }] = receiver.payloads(HOOK)
    expect(user).toMatchObject({ phone })
    expect(sms).toEqual({ otp: expect.stringMatching(/^\d{6}$/), phone })
    const verified = await post('/verify', { type: 'sms', phone, token: sms.otp })
    expect(verified.status).toBe(200)
    const bearer = verified.body.access_token
    const factor = (await post('/factors', { factor_type: 'phone', phone: `+${phone}` }, bearer))
      .body
    expect((await post(`/factors/${factor.id}/challenge`, {}, bearer)).status).toBe(200)
    expect(receiver.payloads(HOOK)[1].sms).toMatchObject({ sms_type: 'mfa', phone })
  })
})

describe('a receiver that is slow', () => {
  // As many as the connections to Postgres, and some more.
  const REQUESTS = 14

  it.each([
    ['BEFORE_USER_CREATED', () => post('/signup', { email: newEmail(), password: PASSWORD })],
    [
      'BEFORE_USER_CREATED',
      () => {
        const subject = newEmail()
        providers.visitors.set(subject, visitor(subject, subject))
        return post('/token?grant_type=id_token', { provider: 'github', id_token: subject })
      },
    ],
    [TOKENS, () => post('/signup', {})],
  ] as const)('of %s holds no connection to Postgres (%#)', async (hook, ask) => {
    const { email } = await createUser(server)
    const { access_token: bearer, refresh_token: refreshToken } = await signIn(server, email)
    const waiting: (() => void)[] = []
    receiver.answers.set(hook, ({ payload }) => ({
      write: (outgoing) =>
        void waiting.push(() => {
          outgoing.setHeader('content-type', 'application/json')
          outgoing.end(JSON.stringify(hook === TOKENS ? payload : {}))
        }),
    }))
    const requests = Array.from({ length: REQUESTS }, ask)
    if (hook === TOKENS) requests.push(refresh(server, refreshToken))
    await expect.poll(() => waiting.length).toBe(requests.length)
    const { pool } = server.database
    // The outbox may be at work for a moment.
    await expect.poll(() => pool.totalCount - pool.idleCount).toBe(0)
    expect((await server.call({ path: '/user', bearer })).status).toBe(200)
    for (const answer of waiting) answer()
    const statuses = (await Promise.all(requests)).map(({ status }) => status)
    expect(new Set(statuses)).toEqual(new Set([200]))
  })
})
