import { afterAll, beforeAll, expect, it } from 'vitest'

import { createCaptchaVerifier } from '#api/auth/delivery/captcha.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'

let peer: HttpPeer
let reply: PeerReply
beforeAll(async () => {
  peer = await startHttpPeer(() => reply)
})
afterAll(() => peer.stop())

const verify = (provider: 'hcaptcha' | 'turnstile', token = 'tok') =>
  createCaptchaVerifier({
    provider,
    secret: 's3',
    timeoutSeconds: 0.3,
    url: `${peer.url}/siteverify`,
  }).verify(token, '203.0.113.9')

it.each(['hcaptcha', 'turnstile'] as const)(
  '%s is asked with secret, token and address',
  async (id) => {
    reply = { body: { success: true } }
    await verify(id)
    expect(peer.requests.at(-1)).toMatchObject({
      method: 'POST',
      form: { secret: 's3', response: 'tok', remoteip: '203.0.113.9' },
    })
  },
)

it.each([
  ['a failed check', { body: { success: false, 'error-codes': ['a', 'b'] } }, 400, '(a, b)'],
  ['a success that is not true', { body: { success: 'yes' } }, 400, 'disallowed'],
  ['a page', { body: '<html>' }, 500, 'process failed'],
  ['an error', { status: 503, body: { success: true } }, 500, 'process failed'],
  ['silence', 'hang', 500, 'process failed'],
] as [string, PeerReply, number, string][])(
  '%s is refused',
  async (_name, answer, status, text) => {
    reply = answer
    await expect(verify('turnstile')).rejects.toMatchObject({
      status,
      code: 'captcha_failed',
      message: expect.stringContaining(text),
    })
  },
)

it('a missing token is refused without asking', async () => {
  const before = peer.requests.length
  await expect(verify('hcaptcha', ' ')).rejects.toThrow('no captcha_token found')
  expect(peer.requests.length).toBe(before)
})
