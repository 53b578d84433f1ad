import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createSmsSender } from '#api/auth/delivery/sms.ts'
import { readSmsConfig } from '#shared/config/auth-sms.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'

let peer: HttpPeer
let reply: PeerReply
beforeAll(async () => {
  peer = await startHttpPeer(() => reply)
})
afterAll(() => peer.stop())

const NOW = Date.parse('2026-01-01T00:00:00Z')
const fetch = createGuardedFetch({ timeoutMs: 500, allowsPrivateAddresses: true })

function sender(gateway: string, env: Record<string, string> = {}) {
  const settings = {
    AUTH_SMS_PROVIDER: gateway,
    AUTH_SMS_TWILIO_ACCOUNT_SID: 'AC1',
    AUTH_SMS_TWILIO_AUTH_TOKEN: 'tok',
    AUTH_SMS_TWILIO_MESSAGE_SERVICE_SID: '15550001',
    AUTH_SMS_TWILIO_CONTENT_SID: 'HX1',
    AUTH_SMS_TWILIO_VERIFY_ACCOUNT_SID: 'AC1',
    AUTH_SMS_TWILIO_VERIFY_AUTH_TOKEN: 'tok',
    AUTH_SMS_TWILIO_VERIFY_MESSAGE_SERVICE_SID: 'VA1',
    AUTH_SMS_MESSAGEBIRD_ACCESS_KEY: 'mk',
    AUTH_SMS_MESSAGEBIRD_ORIGINATOR: 'Mill',
    AUTH_SMS_TEXTLOCAL_API_KEY: 'tk',
    AUTH_SMS_TEXTLOCAL_SENDER: 'Mill',
    AUTH_SMS_VONAGE_API_KEY: 'vk',
    AUTH_SMS_VONAGE_API_SECRET: 'vs',
    AUTH_SMS_VONAGE_FROM: 'M',
    [`AUTH_SMS_${gateway.toUpperCase()}_URL`]: peer.url,
    ...env,
  }
  const clock = { now: () => NOW, monotonic: () => 0 }
  return createSmsSender({ config: readSmsConfig(new EnvReader(settings)), fetch, clock })
}

const SMS = { to: '447700900123', message: 'Code 123456', channel: 'sms', otp: '123456' } as const
const BASIC = `Basic ${Buffer.from('AC1:tok').toString('base64')}`

describe.each([
  {
    id: 'twilio',
    path: '/2010-04-01/Accounts/AC1/Messages.json',
    authorization: BASIC,
    form: { To: '+447700900123', Channel: 'sms', From: '15550001', Body: 'Code 123456' },
    good: { sid: 'm1', status: 'queued' },
    bad: { code: 21211, message: 'Invalid To', more_info: 'https://t.test/21211' },
    problem: 'Invalid To More information: https://t.test/21211',
  },
  {
    id: 'twilio_verify',
    path: '/v2/Services/VA1/Verifications',
    authorization: BASIC,
    form: { To: '+447700900123', Channel: 'sms' },
    good: { sid: 'm1', status: 'pending' },
    bad: { code: 60200, message: 'Invalid parameter', more_info: 'https://t.test/60200' },
    problem: 'Invalid parameter More information: https://t.test/60200',
  },
  {
    id: 'messagebird',
    path: '/messages',
    authorization: 'AccessKey mk',
    form: {
      originator: 'Mill',
      body: 'Code 123456',
      recipients: '447700900123',
      type: 'sms',
      datacoding: 'unicode',
    },
    good: { id: 'm1', recipients: { totalSentCount: 1 } },
    bad: { errors: [{ description: 'no recipients' }] },
    problem: 'no recipients',
  },
  {
    id: 'textlocal',
    path: '/send',
    authorization: undefined,
    form: { sender: 'Mill', apikey: 'tk', message: 'Code 123456', numbers: '447700900123' },
    good: { status: 'success', messages: [{ id: 'm1' }] },
    bad: { status: 'failure', errors: [{ message: 'bad key' }] },
    problem: 'bad key',
  },
  {
    id: 'vonage',
    path: '/sms/json',
    authorization: undefined,
    form: { from: 'M', to: '447700900123', text: 'Code 123456', api_key: 'vk', api_secret: 'vs' },
    good: { messages: [{ status: '0', 'message-id': 'm1' }] },
    bad: { messages: [{ status: '4', 'error-text': 'Bad Credentials' }] },
    problem: 'Bad Credentials',
  },
])('$id', (row) => {
  it('receives credentials and message, and returns the message id', async () => {
    reply = { body: row.good }
    expect(await sender(row.id).send(SMS)).toEqual({ messageId: 'm1' })
    const sent = peer.requests.at(-1)
    expect(sent).toMatchObject({ method: 'POST', path: row.path })
    expect(sent?.form).toEqual(row.form)
    expect(sent?.headers.authorization).toBe(row.authorization)
  })

  it.each(['refuses', 'answers nonsense', 'is silent'])('that %s is reported', async (how) => {
    reply =
      how === 'refuses'
        ? { status: 400, body: row.bad }
        : how === 'is silent'
          ? 'hang'
          : { status: 502, body: '<html>' }
    const detail = how === 'refuses' ? row.problem : how === 'is silent' ? 'cannot be' : '502'
    await expect(sender(row.id).send(SMS)).rejects.toMatchObject({
      kind: 'unprocessable',
      code: 'sms_send_failed',
      message: expect.stringContaining(detail),
    })
  })
})

describe('text messages', () => {
  it('go by WhatsApp with the content template', async () => {
    reply = { body: { sid: 'm1' } }
    await sender('twilio').send({ ...SMS, channel: 'whatsapp' })
    const content = { ContentSid: 'HX1', ContentVariables: '{"1":"123456"}' }
    const sent = { To: 'whatsapp:+447700900123', Channel: 'whatsapp' }
    expect(peer.requests.at(-1)?.form).toEqual({ ...sent, From: 'whatsapp:+15550001', ...content })
    const service = { AUTH_SMS_TWILIO_MESSAGE_SERVICE_SID: 'MG1' }
    await sender('twilio', service).send({ ...SMS, channel: 'whatsapp' })
    expect(peer.requests.at(-1)?.form).toEqual({ ...sent, From: 'MG1', ...content })
    const plain = { ...service, AUTH_SMS_TWILIO_CONTENT_SID: '' }
    await sender('twilio', plain).send({ ...SMS, channel: 'whatsapp' })
    expect(peer.requests.at(-1)?.form).toEqual({ ...sent, From: 'MG1', Body: SMS.message })
    await expect(sender('vonage').send({ ...SMS, channel: 'whatsapp' })).rejects.toThrow('whatsapp')
  })

  it('need a gateway with all its settings', async () => {
    const message = 'Unable to get SMS provider'
    await expect(sender('none').send(SMS)).rejects.toThrow(message)
    const incomplete = sender('vonage', { AUTH_SMS_VONAGE_FROM: '' })
    await expect(incomplete.send(SMS)).rejects.toThrow(message)
  })

  it.each([
    ['2026-01-01T00:00:01Z', '123456'],
    ['2026-01-01T00:00:00Z', undefined],
  ])('have fixed codes until %s', (until, expected) => {
    const env = { AUTH_SMS_TEST_OTP: '447700900123:123456', AUTH_SMS_TEST_OTP_VALID_UNTIL: until }
    expect(sender('none', env).testOtp('+447700900123')).toBe(expected)
    expect(sender('none', env).testOtp('constructor')).toBeUndefined()
  })
})
