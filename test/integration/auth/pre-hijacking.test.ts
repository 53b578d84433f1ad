import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { newEmail, PASSWORD } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

const PLANTED = 'planted password'
const providers = fakeProviders()
let server: TestServer

beforeAll(async () => {
  server = await startServer({
    providers,
    env: {
      AUTH_SMTP_MAX_FREQUENCY: '0',
      AUTH_SMS_MAX_FREQUENCY: '0',
      AUTH_EXTERNAL_PHONE_ENABLED: 'true',
    },
  })
})

afterAll(() => server.close())

describe('a password and metadata that an attacker planted', () => {
  it.each(['/otp', '/magiclink', '/recover'])('are gone after a link of %s', async (path) => {
    const email = newEmail('victim')
    await plant(email)
    await post(path, { email })
    const { body: victim } = await follow(email)
    expect(victim.user.user_metadata).not.toHaveProperty('note')
    expect((await signInWith({ email, password: PLANTED })).body.error_code).toBe(
      'invalid_credentials',
    )
  })

  it('are gone after the link of the owner’s sign-up, whose password signs in', async () => {
    const email = newEmail('victim')
    await plant(email)
    const { body: answer } = await post('/signup', { email, password: PASSWORD, data: { own: 1 } })
    expect(answer.user_metadata).toMatchObject({ own: 1 })
    const { body: victim } = await follow(email)
    expect(victim.user.user_metadata).toMatchObject({ own: 1, email_verified: true })
    expect(victim.user.user_metadata).not.toHaveProperty('note')
    expect((await signInWith({ email, password: PLANTED })).status).toBe(400)
    expect((await signInWith({ email, password: PASSWORD })).status).toBe(200)
  })

  it('are gone after an invitation', async () => {
    const email = newEmail('victim')
    await plant(email)
    await post('/invite', { email }, await server.serviceToken())
    await follow(email)
    expect((await signInWith({ email, password: PLANTED })).status).toBe(400)
  })

  it('are gone after a code to the phone', async () => {
    const phone = '4915112345670'
    await post('/signup', { phone, password: PLANTED, data: { note: 'planted' } })
    await post('/otp', { phone })
    const { otp } = server.messages.at(-1) as { otp: string }
    const verified = await post('/verify', { type: 'sms', phone, token: otp })
    expect(verified.body.user.user_metadata).not.toHaveProperty('note')
    expect((await signInWith({ phone, password: PLANTED })).status).toBe(400)
  })

  it('are gone with the identity of an unverified provider address', async () => {
    const email = newEmail('victim')
    const profile = visitor('gh-attacker', email, { isVerified: false })
    await arrive(profile)
    await post('/otp', { email })
    const { body: victim } = await follow(email)
    const names = victim.user.identities.map((one: { provider: string }) => one.provider)
    expect(names).toEqual(['email'])
  })

  it('answer sign-ins like the real ones until then', async () => {
    const email = newEmail()
    await plant(email)
    expect((await signInWith({ email, password: PLANTED })).body.error_code).toBe(
      'email_not_confirmed',
    )
    expect((await signInWith({ email, password: 'another one' })).body.error_code).toBe(
      'invalid_credentials',
    )
  })
})

it('a sign-up that is confirmed by its own link keeps password and metadata', async () => {
  const email = newEmail()
  await plant(email)
  await post('/resend', { type: 'signup', email })
  const { body } = await follow(email)
  expect(body.user.user_metadata).toMatchObject({ note: 'planted' })
  expect((await signInWith({ email, password: PLANTED })).status).toBe(200)
})

describe('a code for one phone number', () => {
  it('never confirms another one, however the change races with it', async () => {
    const email = newEmail()
    await plant(email)
    const { body: session } = await follow(email)
    const bearer = session.access_token
    for (let round = 0; round < 10; round += 1) {
      const own = `49151200000${10 + round}`
      const victim = `49151300000${10 + round}`
      await server.call({ method: 'PUT', path: '/user', bearer, body: { phone: own } })
      const { otp } = server.messages.at(-1) as { otp: string }
      await Promise.all([
        server.call({ method: 'PUT', path: '/user', bearer, body: { phone: victim } }),
        post('/verify', { type: 'phone_change', phone: own, token: otp }),
      ])
      await post('/verify', { type: 'phone_change', phone: own, token: otp })
      const { body } = await server.call({ path: '/user', bearer })
      expect(body.phone).not.toBe(victim)
    }
  })
})

describe('metadata', () => {
  it.each(['/signup', '/otp'])('beyond 16 KiB is refused by %s, naming the field', async (path) => {
    const email = newEmail()
    const { status, body } = await post(path, {
      email,
      password: PASSWORD,
      data: { text: 'x'.repeat(17_000) },
    })
    expect([status, body.error_code]).toEqual([400, 'validation_failed'])
    expect(body.msg).toContain('data')
  })
})

async function plant(email: string): Promise<void> {
  const data = { note: 'planted' }
  const { status } = await post('/signup', { email, password: PLANTED, data })
  expect(status).toBe(200)
}

function post(path: string, body: unknown, bearer?: string): Promise<CallResult> {
  return server.call({ method: 'POST', path, body, ...(bearer !== undefined && { bearer }) })
}

/** Redeems the link of the newest mail to an address, as a server-side client does. */
async function follow(email: string): Promise<CallResult> {
  const { variables } = server.lastMail(email)
  const type = new URL(variables.confirmationUrl).searchParams.get('type')
  const answer = await post('/verify', { type, token_hash: variables.tokenHash })
  expect(answer.status).toBe(200)
  return answer
}

function signInWith(credentials: object): Promise<CallResult> {
  return post('/token?grant_type=password', credentials)
}

async function arrive(profile: Parameters<typeof providers.visitors.set>[1]): Promise<void> {
  const { location } = await server.call({ path: '/authorize?provider=github' })
  providers.visitors.set('code', profile)
  const state = new URL(location).searchParams.get('state')
  await server.call({ path: `/callback?code=code&state=${state}` })
}
