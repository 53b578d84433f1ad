import { createHash } from 'node:crypto'

import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import { checkPasswordRules } from '#api/auth/passwords/password-rules.ts'
import { createLogger } from '#shared/logger.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'

const PASSWORD = 'correct horse battery staple'
const DIGEST = createHash('sha1').update(PASSWORD).digest('hex').toUpperCase()
const log = createLogger({ level: 'silent' })

let peer: HttpPeer
let reply: PeerReply
beforeEach(async () => {
  peer = await startHttpPeer(() => reply)
})
afterEach(() => peer.stop())

function check(isFailClosed: boolean): Promise<void> {
  const breachCheck = { isEnabled: true, isFailClosed, url: peer.url }
  const argon2 = { memoryKib: 8, iterations: 1, parallelism: 1 }
  const config = {
    lengthMin: 6,
    requiredCharacters: [],
    breachCheck,
    argon2,
    hashConcurrency: 1,
    hashQueueMax: 1,
  }
  return checkPasswordRules(PASSWORD, { config, log })
}

describe('a password that is looked up among the breached ones', () => {
  it('is refused if it is one of them, and only five digits are sent', async () => {
    reply = { body: `${'0'.repeat(35)}:0\r\n${DIGEST.slice(5)}:12\r\n` }
    await expect(check(false)).rejects.toThrow('Password is known to be weak')
    expect(peer.requests.map(({ path }) => path)).toEqual([`/range/${DIGEST.slice(0, 5)}`])
  })

  it('is accepted if it is not one of them, or only padding', async () => {
    reply = { body: `${'0'.repeat(35)}:9\r\n${DIGEST.slice(5)}:0\r\n` }
    await check(true)
  })

  it.each<[string, PeerReply]>([
    ['fails', { status: 500, body: 'no' }],
    ['leads elsewhere', { status: 302, headers: { location: '/other' }, body: '' }],
    ['says more than it may', { body: `${DIGEST.slice(5)}:12\n${'x'.repeat(1024 * 1024)}` }],
  ])('is judged by the setting when the service %s', async (_title, answer) => {
    reply = answer
    await check(false)
    await expect(check(true)).rejects.toThrow('Passwords cannot be checked for breaches')
  })
})
