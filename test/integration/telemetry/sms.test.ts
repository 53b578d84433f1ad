import { expect } from 'vitest'

import { type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'
import { scrape, sumOf } from '#test/support/metrics-text.ts'
import { it } from '#test/support/services.ts'
import { startTiers } from '#test/support/tiers.ts'

const PHONE = '447700900123'
const NAME = 'millrace_sms_duration_seconds'

it('text messages are measured by gateway and outcome, without numbers or codes', {
  timeout: 120_000,
}, async ({ databaseUrl, redisUrl, keyPrefix, folder }) => {
  let reply: PeerReply = { body: { messages: [{ status: '0', 'message-id': 'm1' }] } }
  const gateway = await startHttpPeer(() => reply)
  const tiers = await startTiers({
    databaseUrl,
    redisUrl,
    keyPrefix,
    folder,
    env: {
      AUTH_EXTERNAL_PHONE_ENABLED: 'true',
      AUTH_SMS_PROVIDER: 'vonage',
      AUTH_SMS_VONAGE_API_KEY: 'key',
      AUTH_SMS_VONAGE_API_SECRET: 'secret',
      AUTH_SMS_VONAGE_FROM: 'Mill',
      AUTH_SMS_VONAGE_URL: gateway.url,
      AUTH_SMS_MAX_FREQUENCY: '0s',
    },
  })
  try {
    const send = async () => {
      const answer = await fetch(`${tiers.url}/otp`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ phone: PHONE }),
      })
      return answer.status
    }
    const count = async (outcome: string, part = 'count') =>
      sumOf(await scrape(tiers.metricsUrl), `${NAME}_${part}`, { gateway: 'vonage', outcome })
    // Both series are there before the first message, so that a rate shows it.
    expect([await count('ok'), await count('failed')]).toEqual([0, 0])
    // A newer code replaces one that waits for its delivery.
    for (const sent of [1, 2]) {
      expect(await send()).toBe(200)
      await expect.poll(() => count('ok')).toBe(sent)
    }
    expect(await count('failed')).toBe(0)
    expect(await count('ok', 'sum')).toBeGreaterThan(0)
    reply = { body: { messages: [{ status: '4', 'error-text': 'Bad credentials' }] } }
    expect(await send()).toBe(200)
    await expect.poll(() => count('failed')).toBeGreaterThan(0)
    expect(await count('ok')).toBe(2)
    const code = /\d{6}/.exec(String(gateway.requests[0]?.form.text))?.[0] ?? ''
    const text = await (await fetch(tiers.metricsUrl)).text()
    expect(code).toMatch(/^\d{6}$/)
    for (const secret of [PHONE, code]) expect(text).not.toContain(secret)
  } finally {
    await tiers.stop()
    await gateway.stop()
  }
})
