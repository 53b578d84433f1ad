import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, newEmail, PASSWORD } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer
let autoconfirming: TestServer

beforeAll(async () => {
  server = await startServer({ isFrozen: true, env: { AUTH_EXTERNAL_PHONE_ENABLED: 'true' } })
  autoconfirming = await startServer({ env: { AUTH_MAILER_AUTOCONFIRM: 'true' } })
})

afterAll(async () => {
  await server.close()
  await autoconfirming.close()
})

const post = (to: TestServer, path: string, body: object): Promise<CallResult> =>
  to.call({ method: 'POST', path, body })

describe('many sign-ups with one address at once', () => {
  it('make one user, send one mail, and answer as if each were the first', async () => {
    const email = newEmail()
    const body = { email, password: PASSWORD }
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => post(server, '/signup', body)),
    )
    for (const answer of answers) expect([200, 429]).toContain(answer.status)
    expect(server.mails.filter((mail) => mail.to === email)).toHaveLength(1)
    expect(await countUsers(server, email)).toBe(1)
  })

  it('admit one if addresses need no confirmation', async () => {
    const body = { email: newEmail(), password: PASSWORD }
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => post(autoconfirming, '/signup', body)),
    )
    expect(answers.filter((answer) => answer.status === 200)).toHaveLength(1)
    const refused = answers.filter((answer) => answer.status === 400)
    expect(refused).toHaveLength(9)
    for (const { body: error } of refused) expect(error.error_code).toBe('user_already_exists')
    expect(await countUsers(autoconfirming, body.email)).toBe(1)
  })
})

describe('a second sign-up before the first is confirmed', () => {
  it('is replaced by the newest one, whose link brings its own password and metadata', async () => {
    const email = newEmail()
    const sign = (password: string, data: object) =>
      post(server, '/signup', { email, password, data })
    const first = await sign('the first one', { a: 1 })
    const { tokenHash: older } = server.lastMail(email).variables
    server.clock.advance(60)
    const second = await sign(PASSWORD, { b: 2 })
    expect(second.body.id).toBe(first.body.id)
    expect(second.body.user_metadata).toMatchObject({ b: 2 })
    expect(second.body.user_metadata).not.toHaveProperty('a')
    const { location } = await server.call({ path: `/verify?type=signup&token=${older}` })
    expect(location).toContain('otp_expired')
    const { token } = server.lastMail(email).variables
    const { body } = await post(server, '/verify', { type: 'signup', email, token })
    expect(body.user.user_metadata).not.toHaveProperty('a')
    const signIn = (password: string) =>
      post(server, '/token?grant_type=password', { email, password })
    expect((await signIn('the first one')).status).toBe(400)
    expect((await signIn(PASSWORD)).status).toBe(200)
  })

  it('reveals nothing about an invited user', async () => {
    const email = newEmail()
    const bearer = await server.serviceToken()
    const invited = { email, data: { salary: 1 } }
    await server.call({ method: 'POST', path: '/invite', bearer, body: invited })
    server.clock.advance(60)
    const { body } = await post(server, '/signup', { email, password: PASSWORD })
    expect(body).toMatchObject({ user_metadata: {}, identities: [] })
  })
})

describe('a sign-up by phone', () => {
  it('answers for existing numbers as for new ones', async () => {
    const phone = '+41790009988'
    await createUser(server, { email: undefined, phone, phone_confirm: true })
    const taken = await post(server, '/signup', { phone, password: PASSWORD })
    const free = await post(server, '/signup', { phone: '+41790009989', password: PASSWORD })
    expect([taken.status, free.status]).toEqual([200, 200])
    expect(taken.body.phone).toBe('41790009988')
    expect(Object.keys(taken.body).sort()).toEqual(Object.keys(free.body).sort())
  })
})

describe('a banned user', () => {
  it('is reported as unconfirmed only to a caller with the right password', async () => {
    const { email } = await createUser(server, { ban_duration: '1h' })
    const sign = (password: string) =>
      post(server, '/token?grant_type=password', { email, password })
    expect((await sign('wrong')).body.error_code).toBe('invalid_credentials')
    expect((await sign(PASSWORD)).body).toMatchObject({ code: 400, error_code: 'user_banned' })
    server.clock.advance(3600)
    expect((await sign(PASSWORD)).status).toBe(200)
  })
})

async function countUsers(of: TestServer, email: string): Promise<number> {
  const { rows } = await of.database.pool.query('select 1 from users where email = $1', [email])
  return rows.length
}
