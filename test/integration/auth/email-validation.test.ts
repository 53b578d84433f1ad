import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createAddressValidator, type MailResolver } from '#api/auth/delivery/validate-address.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'

import { createUser, newEmail, PASSWORD, signIn } from './support/people.ts'
import { readConfig, startServer } from './support/server.ts'

let peer: HttpPeer
let reply: PeerReply = { body: {} }
beforeAll(async () => {
  peer = await startHttpPeer(() => reply)
})
afterAll(() => peer.stop())

const NOWHERE = {
  isExtended: false,
  serviceUrl: '',
  serviceHeaders: {},
  blockedMailServers: ['mx.blocked.net', 'host.blocked.net'],
}
const notFound = (code: string) => () => Promise.reject(Object.assign(new Error(code), { code }))
const resolves = (overrides: Partial<MailResolver> = {}): MailResolver => ({
  resolveMx: async () => [{ exchange: 'mx.real.net' }],
  lookup: async () => undefined,
  ...overrides,
})
const INVALID = { kind: 'invalidRequest', code: 'email_address_invalid' }

describe('extended validation', () => {
  const check = (email: string, resolver = resolves()) =>
    createAddressValidator({ ...NOWHERE, isExtended: true }, resolver).requireDeliverable({
      kind: 'email',
      email,
    })

  it.each([
    ['test@gmail.com'],
    ['short@gmail.com'],
    ['ada@example.com'],
    ['ada@sub.test'],
    ['ada@localhost'],
    ['ada@gamil.com'],
  ])('refuses %s', (email) => expect(check(email)).rejects.toMatchObject(INVALID))

  it.each<[string, MailResolver, boolean]>([
    ['has a mail server', resolves(), true],
    ['has an address only', resolves({ resolveMx: notFound('ENODATA') }), true],
    [
      'is unknown',
      resolves({ resolveMx: notFound('ENOTFOUND'), lookup: notFound('ENOTFOUND') }),
      false,
    ],
    ['cannot be looked up', resolves({ resolveMx: notFound('ESERVFAIL') }), true],
    [
      'cannot be looked up at last',
      resolves({ resolveMx: notFound('ENODATA'), lookup: notFound('EAI_AGAIN') }),
      true,
    ],
    [
      'has a blocked mail server',
      resolves({ resolveMx: async () => [{ exchange: 'MX.Blocked.net.' }] }),
      false,
    ],
  ])('of a host that %s', async (_what, resolver, isGood) => {
    const outcome = check('ada.lovelace@real.net', resolver)
    if (isGood) await expect(outcome).resolves.toBeUndefined()
    else await expect(outcome).rejects.toMatchObject(INVALID)
  })

  it('does not apply to phone numbers', async () => {
    const validator = createAddressValidator({ ...NOWHERE, isExtended: true }, resolves())
    await validator.requireDeliverable({ kind: 'phone', phone: '447700900123' })
  })
})

describe('the validation service', () => {
  const check = () =>
    createAddressValidator({
      ...NOWHERE,
      serviceUrl: `${peer.url}/check`,
      serviceHeaders: { authorization: ['Bearer key'] },
    }).requireDeliverable({ kind: 'email', email: 'ada@example.com' })

  it('gets the address, and refuses it', async () => {
    reply = { body: { valid: false } }
    await expect(check()).rejects.toMatchObject({
      ...INVALID,
      message: 'Email address "ada@example.com" is invalid',
    })
    expect(peer.requests.at(-1)).toMatchObject({
      method: 'POST',
      path: '/check',
      text: '{"email":"ada@example.com"}',
      headers: { authorization: 'Bearer key', 'content-type': 'application/json' },
    })
  })

  it.each<[string, PeerReply]>([
    ['accepts', { body: { valid: true } }],
    ['says nothing', { body: {} }],
    ['answers null', { body: null }],
    ['answers a page', { body: '<p>' }],
    ['fails', { status: 500, body: { valid: false } }],
    ['redirects', { status: 302, headers: { location: '/other' }, body: '' }],
    ['answers too much', { body: { valid: false, text: 'x'.repeat(10_000) } }],
  ])('that %s refuses nothing', async (_what, given) => {
    reply = given
    await expect(check()).resolves.toBeUndefined()
  })
})

it('runs before any mail is sent, and for unknown addresses too', async () => {
  reply = { body: { valid: true } }
  const server = await startServer({
    env: {
      AUTH_MAILER_EMAIL_VALIDATION_SERVICE_URL: peer.url,
      AUTH_MAILER_EMAIL_VALIDATION_SERVICE_HEADERS: '{"x-key":["a"]}',
      AUTH_SMTP_MAX_FREQUENCY: '0',
    },
  })
  const { email } = await createUser(server)
  const { access_token: bearer } = await signIn(server, email)
  const service = await server.serviceToken()
  reply = { body: { valid: false } }
  const post = (path: string, body: object, token?: string) =>
    server.call({ method: 'POST', path, body, ...(token !== undefined && { bearer: token }) })
  const answers = [
    await post('/signup', { email: newEmail(), password: PASSWORD }),
    await post('/otp', { email }),
    await post('/recover', { email }),
    await post('/recover', { email: newEmail() }),
    await post('/resend', { type: 'signup', email: newEmail() }),
    await post('/invite', { email: newEmail() }, service),
    await server.call({ method: 'PUT', path: '/user', bearer, body: { email: newEmail() } }),
  ]
  for (const { status, body } of answers) {
    expect([status, body.error_code]).toEqual([400, 'email_address_invalid'])
  }
  expect(server.mails).toEqual([])
  await server.close()
})

it.each([
  ['BLOCKED_MX', 'mx.example.com', 'JSON list'],
  ['BLOCKED_MX', '[1]', 'JSON list'],
  ['SERVICE_HEADERS', '["x"]', 'JSON object'],
  ['SERVICE_URL', 'service', 'must be a URL'],
])('the setting %s cannot be %s', (name, value, problem) => {
  const env = {
    AUTH_SITE_URL: 'http://localhost:3000',
    AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
    AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
  }
  const read = () => readConfig({ ...env, [`AUTH_MAILER_EMAIL_VALIDATION_${name}`]: value })
  expect(read).toThrow(problem)
})
