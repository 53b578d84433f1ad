import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, newEmail, PASSWORD, signedInUser, signIn } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer
let phones = 41790000000

beforeAll(async () => {
  server = await startServer({
    isFrozen: true,
    env: {
      AUTH_EXTERNAL_PHONE_ENABLED: 'true',
      AUTH_SECURITY_UPDATE_PASSWORD_REQUIRE_REAUTHENTICATION: 'true',
    },
  })
})

afterAll(() => server.close())

const update = (bearer: string, body: object): Promise<CallResult> =>
  server.call({ method: 'PUT', path: '/user', bearer, body })
const verify = (body: object): Promise<CallResult> =>
  server.call({ method: 'POST', path: '/verify', body })

describe('a change of address', () => {
  it('needs both sides, in any order, and then both links are void', async () => {
    for (const isNewFirst of [true, false]) {
      const { access_token: bearer, user } = await signedInUser(server)
      const newAddress = newEmail('new')
      const asked = await update(bearer, { email: newAddress })
      expect(asked.body).toMatchObject({
        email: user.email,
        new_email: newAddress,
        email_change_sent_at: expect.any(String),
      })
      const [a, b] = isNewFirst ? [newAddress, user.email] : [user.email, newAddress]
      const path = (to: string) => {
        const url = new URL(server.lastMail(to).variables.confirmationUrl)
        return url.pathname + url.search
      }
      const [first, second] = [path(a), path(b)]
      const half = await server.call({ path: first })
      expect(half.location).toMatch(/#message=Confirmation\+link\+accepted/)
      expect((await server.call({ path: first })).location).toContain('otp_expired')
      expect((await server.call({ path: '/user', bearer })).body.email).toBe(user.email)
      expect((await server.call({ path: second })).location).toContain('type=email_change')
      const { body } = await server.call({ path: '/user', bearer })
      expect(body.email).toBe(newAddress)
      expect(body).not.toHaveProperty('new_email')
      expect(body.identities[0].identity_data.email).toBe(newAddress)
    }
  })

  it('can be agreed to by typing the codes', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const email = newEmail('typed')
    await update(bearer, { email })
    const code = (to: string) => server.lastMail(to).variables.token
    const half = await verify({ type: 'email_change', email, token: code(email) })
    expect(half.body).toMatchObject({ code: '200', msg: expect.stringContaining('other email') })
    const token = code(user.email)
    const done = await verify({ type: 'email_change', email: user.email, token })
    expect(done.body.user.email).toBe(email)
  })

  it('fails when another user has the address by then', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const email = newEmail('contested')
    await update(bearer, { email })
    await createUser(server, { email })
    await verify({ type: 'email_change', token_hash: server.lastMail(email).variables.tokenHash })
    const { tokenHash: token_hash } = server.lastMail(user.email).variables
    const answer = await verify({ type: 'email_change', token_hash })
    expect(answer.body).toMatchObject({ code: 422, error_code: 'email_exists' })
  })

  it('is sent again on request, within the limits', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const email = newEmail('again')
    await update(bearer, { email })
    const resend = () =>
      server.call({
        method: 'POST',
        path: '/resend',
        body: { type: 'email_change', email: user.email },
      })
    expect((await resend()).body).toMatchObject({
      code: 429,
      error_code: 'over_email_send_rate_limit',
      msg: 'For security purposes, you can only request this after 60 seconds.',
    })
    server.clock.advance(60)
    const before = server.mails.length
    expect(await resend()).toMatchObject({ status: 200, body: {} })
    expect(server.mails.length - before).toBe(2)
  })
})

describe('a link of a change', () => {
  const link = (to: string) => {
    const url = new URL(server.lastMail(to).variables.confirmationUrl)
    return url.pathname + url.search
  }

  it('confirms no other address than the one that it was sent to', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const [own, foreign] = [newEmail('own'), newEmail('foreign')]
    await update(bearer, { email: own })
    expect((await update(bearer, { email: foreign })).status).toBe(429)
    await server.call({ path: link(user.email) })
    await server.call({ path: link(own) })
    expect((await server.call({ path: '/user', bearer })).body.email).toBe(own)
  })

  it('is void once the user or an administrator has requested another address', async () => {
    const askAgain = {
      user: (bearer: string, _current: string, email: string) => update(bearer, { email }),
      administrator: async (_bearer: string, email: string, new_email: string) =>
        server.call({
          method: 'POST',
          path: '/admin/generate_link',
          bearer: await server.serviceToken(),
          body: { type: 'email_change_current', email, new_email },
        }),
    }
    for (const ask of Object.values(askAgain)) {
      const { access_token: bearer, user } = await signedInUser(server)
      const [own, foreign] = [newEmail('own'), newEmail('foreign')]
      await update(bearer, { email: own })
      const [ofCurrent, ofNew] = [link(user.email), link(own)]
      server.clock.advance(60)
      expect((await ask(bearer, user.email, foreign)).status).toBe(200)
      for (const path of [ofCurrent, ofNew]) {
        expect((await server.call({ path })).location).toContain('otp_expired')
      }
      const { body } = await server.call({ path: '/user', bearer })
      expect(body).toMatchObject({ email: user.email, new_email: foreign })
    }
  })

  it('is void once an administrator has changed the address', async () => {
    const bearer = await server.serviceToken()
    const pathAfter = async (isMoved: boolean): Promise<string> => {
      const { email, id } = await createUser(server)
      await server.call({ method: 'POST', path: '/recover', body: { email } })
      const body = { email: isMoved ? newEmail('moved') : email }
      await server.call({ method: 'PUT', path: `/admin/users/${id}`, bearer, body })
      return link(email)
    }
    const stays = await server.call({ path: await pathAfter(false) })
    expect(stays.location).toContain('access_token')
    expect((await server.call({ path: await pathAfter(true) })).location).toContain('otp_expired')
  })
})

describe('a change of number', () => {
  it('waits for the code', async () => {
    const { access_token: bearer } = await signedInUser(server)
    phones += 1
    const phone = `+${phones}`
    const asked = await update(bearer, { phone })
    expect(asked.body).toMatchObject({ phone: '', new_phone: String(phones) })
    const token = server.messages.at(-1)?.otp
    const { body } = await verify({ type: 'phone_change', phone, token })
    expect(body.user).toMatchObject({
      phone: String(phones),
      phone_confirmed_at: expect.any(String),
    })
    expect(body.user.app_metadata.providers).toEqual(['email', 'phone'])
  })
})

describe('a change of password that needs a nonce', () => {
  it('is refused without it, accepted once with it, and ends the other sessions', async () => {
    const { email } = await createUser(server)
    const [session, other] = [await signIn(server, email), await signIn(server, email)]
    const bearer = session.access_token
    const password = 'a new password'
    expect((await update(bearer, { password })).body).toMatchObject({
      code: 400,
      error_code: 'reauthentication_needed',
    })
    expect((await server.call({ path: '/reauthenticate', bearer })).body).toEqual({})
    const { kind, variables } = server.lastMail(email)
    expect(kind).toBe('reauthentication')
    expect((await update(bearer, { password, nonce: 'wrong' })).body).toMatchObject({
      code: 422,
      error_code: 'reauthentication_not_valid',
    })
    expect((await update(bearer, { password, nonce: variables.token })).status).toBe(200)
    const again = await update(bearer, { password: 'yet another', nonce: variables.token })
    expect(again.body.error_code).toBe('reauthentication_not_valid')
    expect((await server.call({ path: '/user', bearer })).status).toBe(200)
    const gone = await server.call({ path: '/user', bearer: other.access_token })
    expect(gone.body.error_code).toBe('session_not_found')
  })

  it('does not use the nonce up for a password that is refused', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    await server.call({ path: '/reauthenticate', bearer })
    const nonce = server.lastMail(user.email).variables.token
    const change = async (password: string) => (await update(bearer, { password, nonce })).status
    expect([await change('weak'), await change(PASSWORD)]).toEqual([422, 422])
    expect(await change('a new one')).toBe(200)
  })

  it('accepts a recent recovery instead of the nonce', async () => {
    const { email } = await createUser(server)
    await server.call({ method: 'POST', path: '/recover', body: { email } })
    const { token } = server.lastMail(email).variables
    const { body } = await verify({ type: 'recovery', email, token })
    expect((await update(body.access_token, { password: 'recovered one' })).status).toBe(200)
  })

  it('sends the nonce by phone if there is no address, and nothing if there is neither', async () => {
    phones += 1
    const bearer = await server.serviceToken()
    const body = { phone: `+${phones}`, phone_confirm: true, password: PASSWORD }
    await server.call({ method: 'POST', path: '/admin/users', bearer, body })
    const path = '/token?grant_type=password'
    const { phone, password } = body
    const session = await server.call({ method: 'POST', path, body: { phone, password } })
    const answer = await server.call({
      path: '/reauthenticate',
      bearer: session.body.access_token,
    })
    expect(answer.body).toEqual({ message_id: expect.any(String) })
  })
})

it('returns 422 weak_password for an empty password, before it requires a nonce', async () => {
  const { access_token: bearer, user } = await signedInUser(server)
  const answer = await update(bearer, { password: '', data: { colour: 'red' } })
  expect(answer.body).toMatchObject({ code: 422, error_code: 'weak_password' })
  const { body } = await server.call({ path: '/user', bearer })
  expect(body.user_metadata).not.toHaveProperty('colour')
  expect((await signIn(server, user.email)).user.id).toBe(user.id)
})

describe('signing out', () => {
  it('ends this session, the others, or all', async () => {
    const { email } = await createUser(server)
    const alive = async (bearer: string): Promise<boolean> =>
      (await server.call({ path: '/user', bearer })).status === 200
    const out = (bearer: string, scope: string) =>
      server.call({ method: 'POST', path: `/logout?scope=${scope}`, bearer })
    const [a, b, c] = (
      await Promise.all([signIn(server, email), signIn(server, email), signIn(server, email)])
    ).map((session) => session.access_token) as [string, string, string]
    expect((await out(a, 'everywhere')).body.msg).toBe('Unsupported logout scope "everywhere"')
    expect((await out(a, 'local')).status).toBe(204)
    expect(await Promise.all([a, b, c].map(alive))).toEqual([false, true, true])
    await out(b, 'others')
    expect(await Promise.all([a, b, c].map(alive))).toEqual([false, true, false])
    await out(b, 'global')
    expect(await alive(b)).toBe(false)
  })
})

describe('metadata', () => {
  it('keeps all of several changes at the same time', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const keys = Array.from({ length: 10 }, (_, index) => `key${index}`)
    await Promise.all(keys.map((key) => update(bearer, { data: { [key]: 1 } })))
    const { body } = await server.call({ path: '/user', bearer })
    expect(Object.keys(body.user_metadata).sort()).toEqual(['email_verified', ...keys])
  })
})
