import { describe, expect, onTestFinished } from 'vitest'

import { createLimiter } from '#api/limits/limiter.ts'
import { systemClock } from '#shared/clock.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { NO_LIMITS, NOTHING_USED } from '#test/support/limits.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'

const log = createLogger({ level: 'silent' })

describe('anonymous users', () => {
  it('of one network share a limit that does not apply to users with an account', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const redis = await openRedis(redisUrl, 'producer', log)
    onTestFinished(() => redis.disconnect())
    const anonymous = { requestsPerMinute: 3, tokensPerMinute: 0, mayCreateKeys: false }
    const surface = await openV1App(
      database,
      [
        async (app) => {
          app.get('/things', { config: { scope: 'any' } }, async () => ({ ok: true }))
        },
      ],
      {
        verifyAccessToken: async (token) => {
          const userId = token.split('.')[1] ?? ''
          const isAnonymous = userId.startsWith('anonymous')
          return { userId, isAnonymous, organizations: [{ id: userId, role: 'owner' }] }
        },
        gates: [
          createLimiter({
            redis,
            clock: systemClock,
            log,
            prefix: keyPrefix,
            limits: { ...NO_LIMITS, anonymous },
            ...NOTHING_USED,
          }),
        ],
      },
    )
    onTestFinished(() => surface.app.close())
    const statusOf = async (user: string) =>
      (await surface.call('/things', {}, `eyJ.${user}.x`)).status
    for (let turn = 0; turn < 3; turn += 1) expect(await statusOf(`anonymous${turn}`)).toBe(200)
    expect(await statusOf('anonymous9')).toBe(429)
    for (let turn = 0; turn < 5; turn += 1) expect(await statusOf('named')).toBe(200)
  })
})
