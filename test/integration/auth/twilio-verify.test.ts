import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'

import { createDelivery, type Delivery } from '#api/auth/delivery/create-delivery.ts'
import { systemClock } from '#shared/clock.ts'
import { createLogger } from '#shared/logger.ts'
import {
  type HttpPeer,
  type PeerReply,
  type PeerRequest,
  startHttpPeer,
} from '#test/support/http-peers.ts'

import { type CallResult, readConfig, startServer, type TestServer } from './support/server.ts'

let peer: HttpPeer
let delivery: Delivery
let server: TestServer
let phones = 0

const GATEWAY_CODE = '424242'
const BASIC = `Basic ${Buffer.from('AC1:token').toString('base64')}`

function answer({ path, form }: PeerRequest): PeerReply {
  if (path === '/v2/Services/VA1/Verifications') return { body: { sid: 'VE1', status: 'pending' } }
  const isRight = form.Code === GATEWAY_CODE
  return { body: { status: isRight ? 'approved' : 'pending', valid: isRight } }
}

beforeAll(async () => {
  peer = await startHttpPeer(answer)
  const env = {
    AUTH_SITE_URL: 'http://localhost:3000',
    AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
    AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
    AUTH_EXTERNAL_PHONE_ENABLED: 'true',
    AUTH_SMS_PROVIDER: 'twilio_verify',
    AUTH_SMS_TWILIO_VERIFY_ACCOUNT_SID: 'AC1',
    AUTH_SMS_TWILIO_VERIFY_AUTH_TOKEN: 'token',
    AUTH_SMS_TWILIO_VERIFY_MESSAGE_SERVICE_SID: 'VA1',
    AUTH_SMS_TWILIO_VERIFY_URL: peer.url,
    AUTH_SMS_TEST_OTP: '447700900000:111111',
    AUTH_SMS_MAX_FREQUENCY: '0',
    AUTH_MFA_PHONE_ENROLL_ENABLED: 'true',
    AUTH_MFA_PHONE_VERIFY_ENABLED: 'true',
    AUTH_MFA_PHONE_MAX_FREQUENCY: '0',
    AUTH_SECURITY_UPDATE_PASSWORD_REQUIRE_REAUTHENTICATION: 'true',
  }
  const log = createLogger({ level: 'silent' })
  delivery = createDelivery({ config: readConfig(env), clock: systemClock, log })
  const { sms } = delivery
  server = await startServer({ env, sms })
})
beforeEach(() => {
  phones += 1
})
afterAll(async () => {
  await server.close()
  delivery.close()
  await peer.stop()
})

const post = (path: string, body: object, bearer?: string): Promise<CallResult> =>
  server.call({ method: 'POST', path, body, ...(bearer !== undefined && { bearer }) })
const newPhone = () => `4477001${String(phones).padStart(5, '0')}`
const verify = (phone: string, token: string) => post('/verify', { type: 'sms', phone, token })

it('sends no code of this server, and accepts the code of the gateway', async () => {
  const phone = newPhone()
  expect((await post('/otp', { phone, channel: 'whatsapp' })).status).toBe(200)
  const sent = peer.requests.at(-1)
  expect(sent).toMatchObject({ path: '/v2/Services/VA1/Verifications' })
  expect(sent?.form).toEqual({ To: `+${phone}`, Channel: 'whatsapp' })
  expect(sent?.headers.authorization).toBe(BASIC)
  expect((await verify(phone, '111111')).body).toMatchObject({
    code: 403,
    error_code: 'otp_expired',
  })
  // Longer than codes of this server, which the gateway does not know.
  server.clock.advance(500)
  const verified = await verify(phone, GATEWAY_CODE)
  expect(verified.body.user).toMatchObject({ phone, phone_confirmed_at: expect.any(String) })
  const asked = peer.requests.at(-1)
  expect(asked).toMatchObject({ path: '/v2/Services/VA1/VerificationCheck' })
  expect(asked?.form).toEqual({ To: `+${phone}`, Code: GATEWAY_CODE })
})

it('does not ask about numbers without a pending code, nor about test numbers', async () => {
  const before = peer.requests.length
  expect((await verify(newPhone(), GATEWAY_CODE)).status).toBe(403)
  expect((await post('/otp', { phone: '447700900000' })).body.message_id).toBe('test-otp')
  expect((await verify('447700900000', GATEWAY_CODE)).status).toBe(403)
  expect((await verify('447700900000', '111111')).status).toBe(200)
  expect(peer.requests).toHaveLength(before)
})

it('accepts no code while two users claim the number', async () => {
  const number = newPhone()
  const claims = await Promise.all(
    ['a', 'b'].map(async (name) => {
      const phone = `${newPhone()}${name === 'a' ? 1 : 2}`
      await post('/otp', { phone })
      const bearer = (await verify(phone, GATEWAY_CODE)).body.access_token as string
      return () => server.call({ method: 'PUT', path: '/user', bearer, body: { phone: number } })
    }),
  )
  const prove = () => post('/verify', { type: 'phone_change', phone: number, token: GATEWAY_CODE })
  for (const claim of claims) expect((await claim()).status).toBe(200)
  expect((await prove()).body.error_code).toBe('otp_expired')
  server.clock.advance(601)
  await claims[1]?.()
  expect((await prove()).body.user).toMatchObject({ phone: number })
})

it('asks about second factors and nonces too', async () => {
  const phone = newPhone()
  await post('/otp', { phone })
  const { access_token: bearer } = (await verify(phone, GATEWAY_CODE)).body
  const factor = (await post('/factors', { factor_type: 'phone', phone }, bearer)).body
  const prove = async (code: string) => {
    const challenge = (await post(`/factors/${factor.id}/challenge`, {}, bearer)).body
    return post(`/factors/${factor.id}/verify`, { challenge_id: challenge.id, code }, bearer)
  }
  expect((await prove('111111')).body.error_code).toBe('mfa_verification_failed')
  const raised = await prove(GATEWAY_CODE)
  expect(raised.status).toBe(200)
  server.clock.advance(25 * 3600)
  const { refresh_token: refreshToken } = raised.body
  const next = await post('/token?grant_type=refresh_token', { refresh_token: refreshToken })
  const { access_token: later } = next.body
  expect((await server.call({ path: '/reauthenticate', bearer: later })).status).toBe(200)
  const journal = { path: '/admin/audit?per_page=1', bearer: await server.serviceToken() }
  expect((await server.call({ method: 'GET', ...journal })).body).toMatchObject([
    { payload: { action: 'user_reauthenticate_requested', traits: { channel: 'sms' } } },
  ])
  const change = (nonce: string) =>
    server.call({
      method: 'PUT',
      path: '/user',
      bearer: later,
      body: { password: 'another password', nonce },
    })
  expect((await change('111111')).body.error_code).toBe('reauthentication_not_valid')
  expect((await change(GATEWAY_CODE)).status).toBe(200)
})
