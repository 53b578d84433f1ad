import { afterEach, describe, expect, it } from 'vitest'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { createUser, newEmail, PASSWORD, signedInUser, signIn } from './support/people.ts'
import {
  type CallResult,
  type ServerOptions,
  startServer,
  type TestServer,
} from './support/server.ts'

let server: TestServer

const started: TestServer[] = []

afterEach(async () => {
  await Promise.all(started.splice(0).map((each) => each.close()))
})

const start = async (env: Record<string, string>, options: ServerOptions = {}): Promise<void> => {
  server = await startServer({ env, ...options })
  started.push(server)
}
const post = (
  path: string,
  body: object,
  headers: Record<string, string> = {},
): Promise<CallResult> => server.call({ method: 'POST', path, body, headers })
const signUp = (fields: object = {}): Promise<CallResult> =>
  post('/signup', { email: newEmail(), password: PASSWORD, ...fields })

describe('a setting', () => {
  it('is shown at the addresses that sign-in pages read', async () => {
    await start({ AUTH_DISABLE_SIGNUP: 'true', AUTH_EXTERNAL_PHONE_ENABLED: 'true' })
    const { body } = await server.call({ path: '/settings' })
    expect(body).toEqual({
      external: { github: false, google: false, anonymous_users: false, email: true, phone: true },
      disable_signup: true,
      autoconfirm: false,
      mailer_autoconfirm: false,
      phone_autoconfirm: false,
      mfa_enabled: true,
      passkeys_enabled: false,
      sms_provider: '',
      saml_enabled: false,
    })
    expect((await server.call({ path: '/health' })).body).toMatchObject({ name: 'GoTrue' })
    await start({ AUTH_MFA_TOTP_VERIFY_ENABLED: 'false' })
    expect((await server.call({ path: '/settings' })).body).toMatchObject({ mfa_enabled: false })
  })

  it('can refuse new users: AUTH_DISABLE_SIGNUP', async () => {
    await start({ AUTH_DISABLE_SIGNUP: 'true', AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true' })
    const closed = { code: 422, error_code: 'signup_disabled' }
    expect((await signUp()).body).toMatchObject(closed)
    expect((await post('/signup', {})).body).toMatchObject(closed)
    expect((await post('/otp', { email: newEmail() })).body).toMatchObject(closed)
    const { email } = await createUser(server)
    expect((await signIn(server, email)).user.email).toBe(email)
  })

  it('can switch email, phone and anonymous users off', async () => {
    await start({ AUTH_EXTERNAL_EMAIL_ENABLED: 'false' })
    expect((await signUp()).body).toMatchObject({ code: 400, msg: 'Email signups are disabled' })
    const email = newEmail()
    const password = { email, password: PASSWORD }
    expect((await post('/token?grant_type=password', password)).body).toMatchObject({
      code: 422,
      error_code: 'email_provider_disabled',
      msg: 'Email logins are disabled',
    })
    const phone = { phone: '+41791234567', password: PASSWORD }
    expect((await post('/signup', phone)).body).toMatchObject({ msg: 'Phone signups are disabled' })
    expect((await post('/otp', phone)).body.msg).toBe('Unsupported phone provider')
    expect((await post('/signup', {})).body.error_code).toBe('anonymous_provider_disabled')
    expect((await post('/otp', { email })).status).toBe(422)
  })

  it('decides whether codes create users: create_user', async () => {
    await start({})
    const email = newEmail()
    expect((await post('/otp', { email, create_user: false })).body).toMatchObject({
      code: 422,
      error_code: 'otp_disabled',
      msg: 'Signups not allowed for otp',
    })
    expect((await post('/otp', { email, create_user: true })).body).toEqual({})
    expect(server.lastMail(email).kind).toBe('confirmation')
    const { email: known } = await createUser(server)
    await post('/magiclink', { email: known })
    expect(server.lastMail(known).kind).toBe('magicLink')
  })

  it('answers duplicates with 400 when addresses need no confirmation', async () => {
    await start({ AUTH_MAILER_AUTOCONFIRM: 'true', AUTH_RATE_LIMIT_EMAIL_SENT: '0' })
    const email = newEmail()
    expect((await signUp({ email })).body).toMatchObject({ token_type: 'bearer' })
    expect((await signUp({ email })).body).toEqual({
      code: 400,
      error_code: 'user_already_exists',
      msg: 'User already registered',
    })
  })

  it('completes a change of address with one link if addresses need no confirmation', async () => {
    await start({ AUTH_MAILER_AUTOCONFIRM: 'true' })
    for (const side of ['old', 'new']) {
      const { access_token: bearer, user } = await signedInUser(server)
      const email = newEmail('new')
      await server.call({ method: 'PUT', path: '/user', bearer, body: { email } })
      const { tokenHash } = server.lastMail(side === 'old' ? user.email : email).variables
      const { body } = await post('/verify', { type: 'email_change', token_hash: tokenHash })
      expect(body.user.email).toBe(email)
    }
  })

  it('shapes passwords: length and sets of characters', async () => {
    await start({
      AUTH_PASSWORD_MIN_LENGTH: '8',
      AUTH_PASSWORD_REQUIRED_CHARACTERS: 'abc:123:\\:!',
    })
    const weak = await signUp({ password: 'zzzzzzz' })
    expect(weak.body).toMatchObject({
      error_code: 'weak_password',
      msg: 'Password should be at least 8 characters. Password should contain at least one character of each: abc, 123, :!.',
      weak_password: { reasons: ['length', 'characters'] },
    })
    expect((await signUp({ password: 'zzzzza1:' })).status).toBe(200)
    const { email } = await createUser(server)
    expect(await signIn(server, email)).toMatchObject({
      weak_password: { reasons: ['characters'] },
    })
  })

  it('admits users with an unverified address from a provider, but not with a password', async () => {
    const providers = fakeProviders()
    await start(
      { AUTH_MAILER_ALLOW_UNVERIFIED_EMAIL_SIGN_INS: 'true', AUTH_SMTP_MAX_FREQUENCY: '0' },
      { providers },
    )
    const email = newEmail()
    await signUp({ email })
    const grant = await post('/token?grant_type=password', { email, password: PASSWORD })
    expect(grant.body).toMatchObject({ code: 400, error_code: 'email_not_confirmed' })
    const own = newEmail()
    providers.visitors.set('token', visitor('g-1', own, { isVerified: false }))
    const visit = { provider: 'google', id_token: 'token' }
    const { body } = await post('/token?grant_type=id_token', visit)
    expect(body.user).toMatchObject({ email: own, identities: [{ provider: 'google' }] })
    expect(body.user).not.toHaveProperty('email_confirmed_at')
    expect(server.lastMail(own).kind).toBe('confirmation')
  })

  it('limits who gets mail', async () => {
    await start({ AUTH_EXTERNAL_EMAIL_AUTHORIZED_ADDRESSES: 'me@example.com' })
    expect((await signUp()).body.error_code).toBe('email_address_not_authorized')
    expect((await signUp({ email: 'me+label@example.com' })).status).toBe(200)
  })

  it('gives access tokens their lifetime, audience and role', async () => {
    await start({ AUTH_JWT_EXP: '60', AUTH_JWT_AUD: 'web', AUTH_JWT_DEFAULT_GROUP_NAME: 'member' })
    const session = await signedInUser(server)
    expect(session).toMatchObject({ expires_in: 60, user: { aud: 'web', role: 'member' } })
  })

  it('names the roles that may administer', async () => {
    await start({ AUTH_JWT_ADMIN_ROLES: 'boss' })
    const status = async (role: string) =>
      (await server.call({ path: '/admin/users', bearer: await server.serviceToken(role) })).status
    expect([await status('boss'), await status('service_role')]).toEqual([200, 403])
  })

  it('builds the links of mails', async () => {
    await start({
      AUTH_API_EXTERNAL_URL: 'https://api.example.com/auth/v1',
      AUTH_MAILER_URLPATHS_CONFIRMATION: '/auth/v1/verify',
      AUTH_MAILER_EXTERNAL_HOSTS: 'other.example.com',
      AUTH_URI_ALLOW_LIST: 'https://*.example.com/**',
      AUTH_MAILER_OTP_LENGTH: '8',
    })
    const linkOf = async (headers: Record<string, string>, query = ''): Promise<string> => {
      const email = newEmail()
      await post(`/signup${query}`, { email, password: PASSWORD }, headers)
      const { variables } = server.lastMail(email)
      expect(variables.token).toMatch(/^\d{8}$/)
      return variables.confirmationUrl.replace(/token=[0-9a-f]+/, 'token=T')
    }
    const rest = '/auth/v1/verify?token=T&type=signup&redirect_to='
    expect(await linkOf({})).toBe(`https://api.example.com${rest}http://localhost:3000`)
    expect(await linkOf({ 'x-forwarded-host': 'evil.test' })).toContain('https://api.example.com/')
    expect(await linkOf({ 'x-forwarded-host': 'other.example.com' })).toBe(
      `https://other.example.com${rest}http://localhost:3000`,
    )
    const target = 'https://a.example.com/x?y=1'
    expect(await linkOf({ redirect_to: target })).toBe(
      `https://api.example.com${rest}${encodeURIComponent(target)}`,
    )
    expect(await linkOf({}, '?redirect_to=https://evil.test')).toContain('=http://localhost:3000')
    expect(await linkOf({ referer: 'https://b.example.com/page' })).toContain('b.example.com/page')
  })

  it('puts magic links below the path of recoveries unless they have their own', async () => {
    const recovery = { AUTH_MAILER_URLPATHS_RECOVERY: '/auth/v1/verify' }
    for (const [own, path] of [
      [{}, '/auth/v1/verify'],
      [{ AUTH_MAILER_URLPATHS_MAGIC_LINK: '/own' }, '/own'],
    ] as const) {
      await start({ ...recovery, ...own })
      const { email } = await createUser(server)
      await post('/otp', { email })
      const { confirmationUrl } = server.lastMail(email).variables
      expect(new URL(confirmationUrl).pathname).toBe(path)
      const headers = { authorization: `Bearer ${await server.serviceToken()}` }
      const link = await post('/admin/generate_link', { type: 'magiclink', email }, headers)
      expect(new URL(link.body.action_link).pathname).toBe(path)
    }
  })

  it('requires a CAPTCHA, except from administrators', async () => {
    const answers: string[] = []
    const captcha = { verify: async (answer: string) => void answers.push(answer) }
    await start(
      { AUTH_SECURITY_CAPTCHA_ENABLED: 'true', AUTH_SECURITY_CAPTCHA_SECRET: 's' },
      { captcha },
    )
    expect((await signUp()).body).toEqual({
      code: 400,
      error_code: 'captcha_failed',
      msg: 'captcha protection: request disallowed (no captcha_token found)',
    })
    expect((await signUp({ captcha_token: 'flat' })).status).toBe(200)
    expect((await signUp({ gotrue_meta_security: { captcha_token: 'nested' } })).status).toBe(200)
    expect(answers).toEqual(['flat', 'nested'])
    const asked = [
      '/recover',
      '/otp',
      '/magiclink',
      '/resend',
      '/token?grant_type=password',
      '/sso',
    ]
    for (const path of asked) {
      expect((await post(path, { email: newEmail() })).body.error_code, path).toBe('captcha_failed')
    }
    const refresh = await post('/token?grant_type=refresh_token', { refresh_token: 'x' })
    expect(refresh.body.error_code).toBe('refresh_token_not_found')
    const authorization = `Bearer ${await server.serviceToken()}`
    const body = { email: newEmail(), password: PASSWORD }
    expect((await post('/signup', body, { authorization })).status).toBe(200)
  })

  it('gives test numbers their fixed code without sending anything', async () => {
    await start({
      AUTH_EXTERNAL_PHONE_ENABLED: 'true',
      AUTH_SMS_TEST_OTP: '41790000001:123456',
    })
    const phone = '+41 79 000 00 01'
    expect((await post('/otp', { phone })).body).toEqual({ message_id: 'test-otp' })
    const verified = await post('/verify', { type: 'sms', phone, token: '123456' })
    expect(verified.body.user.phone).toBe('41790000001')
    expect(server.messages).toEqual([])
  })

  it('ends the codes of text messages: AUTH_SMS_OTP_EXP', async () => {
    await start({ AUTH_EXTERNAL_PHONE_ENABLED: 'true', AUTH_SMS_OTP_EXP: '90' })
    const verifyAfter = async (phone: string, seconds: number) => {
      await post('/otp', { phone })
      server.clock.advance(seconds)
      const token = server.messages.at(-1)?.otp
      return (await post('/verify', { type: 'sms', phone, token })).body
    }
    expect((await verifyAfter('+41790000003', 91)).error_code).toBe('otp_expired')
    expect((await verifyAfter('+41790000004', 89)).user.phone).toBe('41790000004')
  })

  it('writes the code into the text of a message', async () => {
    await start({ AUTH_EXTERNAL_PHONE_ENABLED: 'true', AUTH_SMS_TEMPLATE: 'Hi {{.Code}}!' })
    const body = { phone: '+41790000002', password: PASSWORD }
    expect((await post('/signup', body)).body).toMatchObject({ phone: '41790000002' })
    const [sent] = server.messages
    expect(sent?.message).toBe(`Hi ${sent?.otp}!`)
    expect((await post('/token?grant_type=password', body)).body.error_code).toBe(
      'phone_not_confirmed',
    )
  })
})
