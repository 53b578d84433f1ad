import { describe, expect, it } from 'vitest'

import { loadWorkerConfig } from '#shared/config/config.ts'
import { redisIndexOf } from '#shared/config/queue-redis.ts'

const URL = 'redis://127.0.0.1:1'

function read(urls: string) {
  const env = { REDIS_URL: URL, MILLRACE_REDIS_PREFIX: 'mine', MILLRACE_QUEUE_REDIS_URLS: urls }
  return loadWorkerConfig(env).infra.queueRedis
}

describe('the Redis servers of queues', () => {
  it('are that of REDIS_URL alone by default', () => {
    expect(read('')).toEqual([{ redisUrl: URL, redisPrefix: 'mine', queues: [] }])
  })

  it('have all queues of a kind or that of one model, and the model decides', () => {
    const found = read(
      `image=redis://127.0.0.1:2  audio.big=redis+cluster://localhost audio=redis://127.0.0.1:2 image.sd=${URL}`,
    )
    expect(found).toEqual([
      { redisUrl: URL, redisPrefix: 'mine', queues: ['image.sd'] },
      { redisUrl: 'redis://127.0.0.1:2', redisPrefix: 'mine', queues: ['image', 'audio'] },
      { redisUrl: 'redis+cluster://localhost', redisPrefix: '{mine}', queues: ['audio.big'] },
    ])
    expect(redisIndexOf(found, 'image', 'sdxl')).toBe(1)
    expect(redisIndexOf(found, 'image', 'sd')).toBe(0)
    expect(redisIndexOf(found, 'audio', 'big')).toBe(2)
    expect(redisIndexOf(found, 'completion', 'chat')).toBe(0)
  })

  it.each([
    ['pictures=redis://127.0.0.1', 'must list <kind>=<url> or <kind>.<model>=<url>'],
    ['image', 'must list <kind>=<url>'],
    ['image.=redis://127.0.0.1', 'must list <kind>=<url>'],
    ['image=redis://127.0.0.1:2 image=redis://127.0.0.1:3', 'lists image twice'],
    ['image=http://:hush@127.0.0.1', 'the URL of image must begin with redis://'],
    ['image=redis://:hush@redis.example', 'MILLRACE_ENCRYPTION_KEY is required'],
  ])('refuses %s', (urls, problem) => {
    expect(() => read(urls)).toThrow(problem)
    expect(() => read(urls)).not.toThrow('hush')
  })
})
