import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'

import { createDelivery, type Delivery } from '#api/auth/delivery/create-delivery.ts'
import { systemClock } from '#shared/clock.ts'
import { createLogger } from '#shared/logger.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'
import { type MailCatcher, startMailCatcher } from '#test/support/mail-catcher.ts'

import { newEmail, PASSWORD } from './support/people.ts'
import { readConfig, startServer, type TestServer } from './support/server.ts'

const PASSED: PeerReply = { body: { success: true } }
const SENT: PeerReply = { status: 201, body: { sid: 'SM1', status: 'queued' } }

let mails: MailCatcher
let peer: HttpPeer
let delivery: Delivery
let server: TestServer
let captchaReply: PeerReply
let smsReply: PeerReply
let phones = 0

beforeAll(async () => {
  mails = await startMailCatcher()
  peer = await startHttpPeer(({ path }) => (path === '/siteverify' ? captchaReply : smsReply))
  const env = {
    AUTH_SITE_URL: 'http://localhost:3000',
    AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
    AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
    AUTH_SMTP_HOST: mails.host,
    AUTH_SMTP_PORT: String(mails.port),
    AUTH_SMTP_ADMIN_EMAIL: 'admin@mill.test',
    AUTH_EXTERNAL_PHONE_ENABLED: 'true',
    AUTH_SMS_PROVIDER: 'twilio',
    AUTH_SMS_TWILIO_ACCOUNT_SID: 'AC1',
    AUTH_SMS_TWILIO_AUTH_TOKEN: 'token',
    AUTH_SMS_TWILIO_MESSAGE_SERVICE_SID: 'MG1',
    AUTH_SMS_TWILIO_URL: peer.url,
    AUTH_SMS_TEMPLATE: 'Use {{ .Code }} at the mill',
    AUTH_SECURITY_CAPTCHA_ENABLED: 'true',
    AUTH_SECURITY_CAPTCHA_SECRET: 'captcha-secret',
    AUTH_SECURITY_CAPTCHA_TIMEOUT: '4s',
    AUTH_SECURITY_CAPTCHA_URL: `${peer.url}/siteverify`,
  }
  delivery = createDelivery({
    config: readConfig(env),
    clock: systemClock,
    log: createLogger({ level: 'silent' }),
  })
  server = await startServer({ env, ...delivery })
})
beforeEach(() => {
  captchaReply = PASSED
  smsReply = SENT
})
afterAll(async () => {
  await server.close()
  delivery.close()
  await mails.stop()
  await peer.stop()
})

const post = (path: string, body: object) =>
  server.call({
    method: 'POST',
    path,
    body: { ...body, gotrue_meta_security: { captcha_token: 'answer' } },
  })

function newPhone(): string {
  phones += 1
  return `+4477009${String(phones).padStart(5, '0')}`
}

const usersWith = async (contact: string) => {
  const sql = 'select count(*)::int as n from users where email = $1 or phone = $1'
  const { rows } = await server.database.pool.query(sql, [contact.replace('+', '')])
  return rows[0].n
}

describe('a dead mail server', () => {
  it('delays the mail of a sign-up, whose newest request wins', async () => {
    const email = newEmail()
    mails.refuseAll(true)
    expect((await post('/signup', { email, password: PASSWORD })).status).toBe(200)
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 1, failing: 1 })
    server.clock.advance(61)
    const newest = 'the newest password'
    expect((await post('/signup', { email, password: newest })).status).toBe(200)
    mails.refuseAll(false)
    // The mail of the first request was replaced: one message waits, for its next attempt.
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 1, failing: 1 })
    server.clock.advance(61)
    server.services.outbox.start()
    const mail = await mails.waitFor(email)
    const [, code] = /enter the code: (\d{6})/.exec(mail.text ?? '') ?? []
    const verified = await post('/verify', { type: 'signup', email, token: code })
    expect(verified.body.user).toMatchObject({ email, email_confirmed_at: expect.any(String) })
    const signIn = (password: string) => post('/token?grant_type=password', { email, password })
    expect((await signIn(PASSWORD)).status).toBe(400)
    expect((await signIn(newest)).status).toBe(200)
    await server.services.outbox.idle()
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 0, failing: 0 })
  })
})

describe('the link of a mail', () => {
  it('confirms the user who clicks on it', async () => {
    const email = newEmail()
    const redirectTo = encodeURIComponent('http://localhost:3000/welcome')
    await post(`/signup?redirect_to=${redirectTo}`, { email, password: PASSWORD })
    const { html = '', text = '' } = await mails.waitFor(email)
    const [, href = ''] = /href="(.*?)"/.exec(html) ?? []
    const link = href.replaceAll('&#38;', '&')
    expect(text).toContain(link)
    const { pathname, search } = new URL(link)
    const { status, location } = await server.call({ path: pathname + search })
    expect(status).toBe(303)
    expect(location).toMatch(/^http:\/\/localhost:3000\/welcome#access_token=/)
  })
})

describe('the link of a mail to a place in the application', () => {
  it.each([
    'http://localhost:3000/a%20b',
    'http://localhost:3000/a+b',
    'http://localhost:3000/%C3%A9?next=%2Fhome&x=1',
  ])('leads to %s as it was asked for', async (place) => {
    const email = newEmail()
    await post(`/signup?redirect_to=${encodeURIComponent(place)}`, { email, password: PASSWORD })
    const { html = '' } = await mails.waitFor(email)
    const [, href = ''] = /href="(.*?)"/.exec(html) ?? []
    const { pathname, search } = new URL(href.replaceAll('&#38;', '&'))
    const { location } = await server.call({ path: pathname + search })
    expect(location.split('#')[0]).toBe(place)
  })
})

describe('a gateway', () => {
  it('carries the code that signs the phone in', async () => {
    const phone = newPhone()
    await post('/otp', { phone })
    const message = peer.requests.findLast(({ form }) => form.To === phone)?.form.Body ?? ''
    const [, code] = /^Use (\d{6}) at the mill$/.exec(message) ?? []
    const { body } = await post('/verify', { type: 'sms', phone, token: code })
    expect(body.user).toMatchObject({ phone: phone.slice(1) })
  })

  it.each<[string, PeerReply]>([
    ['refuses', { status: 401, body: { message: 'Authenticate' } }],
    ['fails later', { status: 201, body: { sid: 'SM', status: 'failed' } }],
  ])('that %s delays the message, and the user can ask again', async (_name, reply) => {
    const phone = newPhone()
    smsReply = reply
    expect((await post('/otp', { phone })).status).toBe(200)
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 1, failing: 1 })
    smsReply = SENT
    server.clock.advance(61)
    expect((await post('/otp', { phone })).status).toBe(200)
    expect(await server.services.outbox.state()).toMatchObject({ waiting: 0, failing: 0 })
  })
})

describe('a CAPTCHA', () => {
  it.each<[string, PeerReply, number]>([
    ['is wrong', { body: { success: false, 'error-codes': ['invalid-input'] } }, 400],
    ['cannot be checked', { status: 503, body: 'down' }, 500],
    ['is never checked', 'hang', 500],
  ])('that %s lets nobody in and stores nothing', async (_name, reply, status) => {
    captchaReply = reply
    const email = newEmail()
    const answer = await post('/signup', { email, password: PASSWORD })
    expect(answer).toMatchObject({ status, body: { error_code: 'captcha_failed' } })
    expect(await usersWith(email)).toBe(0)
    captchaReply = PASSED
    expect((await post('/signup', { email, password: PASSWORD })).status).toBe(200)
    expect(await usersWith(email)).toBe(1)
  })

  it('is verified with the address of the visitor', async () => {
    await post('/recover', { email: newEmail() })
    const asked = peer.requests.findLast(({ path }) => path === '/siteverify')
    expect(asked?.form).toEqual({
      secret: 'captcha-secret',
      response: 'answer',
      remoteip: '127.0.0.1',
    })
  })
})
