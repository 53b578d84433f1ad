import { createHash } from 'node:crypto'

import { TOTP } from 'otpauth'
import { afterEach, describe, expect, it } from 'vitest'

import { type HttpPeer, startHttpPeer } from '#test/support/http-peers.ts'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { createUser, newEmail, PASSWORD, signedInUser, signIn } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer
let phones = 41780000000

afterEach(() => server.close())

const post = (path: string, body: object, bearer?: string): Promise<CallResult> =>
  server.call({ method: 'POST', path, body, ...(bearer !== undefined && { bearer }) })
const update = (bearer: string, body: object): Promise<CallResult> =>
  server.call({ method: 'PUT', path: '/user', bearer, body })

describe('a policy', () => {
  it('can require only the new address to confirm a change', async () => {
    server = await startServer({ env: { AUTH_MAILER_SECURE_EMAIL_CHANGE_ENABLED: 'false' } })
    const { access_token: bearer, user } = await signedInUser(server)
    const email = newEmail('new')
    await update(bearer, { email })
    expect(server.mails.map((mail) => mail.to)).not.toContain(user.email)
    const { tokenHash: token_hash } = server.lastMail(email).variables
    const { body } = await post('/verify', { type: 'email_change', token_hash })
    expect(body.user.email).toBe(email)
  })

  it('can allow mails without a gap: of many changes at once, the one with the confirmed link wins', async () => {
    const env = { AUTH_MAILER_SECURE_EMAIL_CHANGE_ENABLED: 'false', AUTH_SMTP_MAX_FREQUENCY: '0' }
    server = await startServer({ env })
    const { access_token: bearer } = await signedInUser(server)
    const wanted = Array.from({ length: 8 }, () => newEmail('wanted'))
    await Promise.all(wanted.map((email) => update(bearer, { email })))
    const pending = (await server.call({ path: '/user', bearer })).body.new_email
    const confirmed: string[] = []
    // A mail whose change was replaced before it left is not sent.
    const mailed = wanted.filter((email) => server.mails.some(({ to }) => to === email))
    for (const email of mailed) {
      const { tokenHash: token_hash } = server.lastMail(email).variables
      const { status, body } = await post('/verify', { type: 'email_change', token_hash })
      if (status === 200) confirmed.push(email)
      if (status === 200) expect(body.user.email).toBe(email)
    }
    expect(confirmed).toEqual([pending])
  })

  it('can do without links that sign in', async () => {
    server = await startServer({ env: { AUTH_EXTERNAL_EMAIL_MAGIC_LINK_ENABLED: 'false' } })
    const { email } = await createUser(server)
    for (const path of ['/otp', '/magiclink']) {
      expect((await post(path, { email })).body).toMatchObject({
        code: 422,
        msg: 'Login with magic link is disabled',
      })
    }
    expect((await post('/recover', { email })).status).toBe(200)
  })

  it('can accept numbers without confirmation', async () => {
    const env = { AUTH_EXTERNAL_PHONE_ENABLED: 'true', AUTH_SMS_AUTOCONFIRM: 'true' }
    server = await startServer({ env })
    phones += 2
    const { body } = await post('/signup', { phone: `+${phones}`, password: PASSWORD })
    expect(body.user).toMatchObject({ phone: `${phones}`, phone_confirmed_at: expect.any(String) })
    const changed = await update(body.access_token, { phone: `+${phones + 1}` })
    expect(changed.body.phone).toBe(`${phones + 1}`)
    expect(changed.body).not.toHaveProperty('new_phone')
    expect(server.messages).toEqual([])
  })

  it('limits verified factors, and deletes those that were not verified in time', async () => {
    server = await startServer({
      isFrozen: true,
      env: { AUTH_MFA_MAX_VERIFIED_FACTORS: '1', AUTH_MFA_FACTOR_EXPIRY_DURATION: '120s' },
    })
    const { access_token: bearer } = await signedInUser(server)
    const enroll = (token: string) =>
      post('/factors', { factor_type: 'totp', friendly_name: 'a' }, token)
    await enroll(bearer)
    expect((await enroll(bearer)).body.error_code).toBe('mfa_factor_name_conflict')
    server.clock.advance(121)
    const { id, totp } = (await enroll(bearer)).body
    const challenge = await post(`/factors/${id}/challenge`, {}, bearer)
    const code = new TOTP({ secret: totp.secret }).generate({ timestamp: server.clock.now() })
    const proof = { challenge_id: challenge.body.id, code }
    const proven = await post(`/factors/${id}/verify`, proof, bearer)
    expect((await enroll(proven.body.access_token)).body).toMatchObject({
      code: 422,
      error_code: 'too_many_enrolled_mfa_factors',
    })
  })

  it('bounds the time from a PKCE code to its exchange', async () => {
    const env = { AUTH_EXTERNAL_FLOW_STATE_EXPIRY_DURATION: '400s' }
    server = await startServer({ isFrozen: true, env })
    const verifier = 'v'.repeat(43)
    const exchangeAfter = async (seconds: number): Promise<CallResult> => {
      const { email } = await createUser(server)
      const pkce = { code_challenge: verifier, code_challenge_method: 'plain' }
      await post('/otp', { email, ...pkce })
      const { tokenHash } = server.lastMail(email).variables
      const { location } = await server.call({ path: `/verify?type=magiclink&token=${tokenHash}` })
      server.clock.advance(seconds)
      const auth_code = new URL(location).searchParams.get('code')
      return post('/token?grant_type=pkce', { auth_code, code_verifier: verifier })
    }
    expect((await exchangeAfter(400)).status).toBe(200)
    expect((await exchangeAfter(401)).body).toMatchObject({
      code: 422,
      error_code: 'flow_state_expired',
    })
  })

  it('can send everybody to one place after an external sign-in, also when it fails', async () => {
    const providers = fakeProviders()
    const env = { AUTH_EXTERNAL_REDIRECT_URL: 'https://landing.example.com/in' }
    server = await startServer({ providers, env })
    providers.visitors.set('known', visitor('gh-1', newEmail()))
    for (const code of ['known', 'unknown']) {
      const begun = await server.call({
        path: '/authorize?provider=github&redirect_to=http://localhost:3000/elsewhere',
      })
      const state = new URL(begun.location).searchParams.get('state')
      const { location } = await server.call({ path: `/callback?code=${code}&state=${state}` })
      expect(location).toMatch(/^https:\/\/landing\.example\.com\/in[?#]/)
    }
    expect((await server.call({ path: '/callback?state=forged' })).location).toMatch(
      /^https:\/\/landing\.example\.com\/in\?/,
    )
  })

  it('names the group whose members may change their app_metadata', async () => {
    server = await startServer({ env: { AUTH_JWT_ADMIN_GROUP_NAME: 'editors' } })
    const app_metadata = { plan: 'gold' }
    for (const [role, status] of [
      ['editors', 200],
      ['authenticated', 403],
    ] as const) {
      const { email } = await createUser(server, { role })
      const { access_token } = await signIn(server, email)
      expect((await update(access_token, { app_metadata })).status).toBe(status)
    }
  })
})

it('a number goes to the user that requested it last and has the code', async () => {
  server = await startServer({ env: { AUTH_EXTERNAL_PHONE_ENABLED: 'true' } })
  phones += 2
  const phone = `+${phones}`
  for (let claimant = 0; claimant < 6; claimant += 1) {
    await update((await signedInUser(server)).access_token, { phone })
  }
  const { access_token: bearer, user } = await signedInUser(server)
  await update(bearer, { phone })
  const token = server.messages.at(-1)?.otp
  const { body } = await post('/verify', { type: 'phone_change', phone, token })
  expect(body.user).toMatchObject({ id: user.id, phone: `${phones}` })
})

describe('passwords that are known from breaches', () => {
  const digest = createHash('sha1').update(PASSWORD).digest('hex').toUpperCase()
  const signUp = (password: string) => post('/signup', { email: newEmail(), password })
  const start = (peer: Pick<HttpPeer, 'url'>, isFailClosed: boolean) =>
    startServer({
      env: {
        AUTH_PASSWORD_HIBP_ENABLED: 'true',
        AUTH_PASSWORD_HIBP_FAIL_CLOSED: String(isFailClosed),
        MILLRACE_PASSWORD_HIBP_URL: peer.url,
      },
    })

  it('are refused, and only five digits of their hash leave the server', async () => {
    const peer = await startHttpPeer(() => ({
      body: `${'0'.repeat(35)}:0\r\n${digest.slice(5)}:42\r\n`,
    }))
    server = await start(peer, false)
    expect((await signUp(PASSWORD)).body).toMatchObject({
      code: 422,
      error_code: 'weak_password',
      weak_password: { reasons: ['pwned'] },
    })
    expect((await signUp('nobody knows this one')).status).toBe(200)
    expect(peer.requests[0]?.path).toBe(`/range/${digest.slice(0, 5)}`)
    await peer.stop()
  })

  it('are accepted while the breach list is unavailable, or refused without the code for weak ones', async () => {
    const peer = await startHttpPeer(() => ({ status: 500, body: 'down' }))
    server = await start(peer, false)
    expect((await signUp(PASSWORD)).status).toBe(200)
    await server.close()
    server = await start(peer, true)
    const { status, body } = await signUp(PASSWORD)
    expect(status).toBe(503)
    expect(body).toMatchObject({
      error_code: 'unexpected_failure',
      msg: 'Passwords cannot be checked for breaches at the moment, please try again later',
    })
    const { email } = await createUser(server)
    expect((await signIn(server, email)).user.email).toBe(email)
    await peer.stop()
  })
})
