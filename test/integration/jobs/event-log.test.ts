import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { EventLog } from '#api/jobs/event-log.ts'
import { freshPrefix } from '#test/support/queue.ts'

let redis: Redis
let log: EventLog
const prefix = freshPrefix()
const lose = (id: string) => redis.del(`${prefix}:job-events:${id}`)

beforeAll(() => {
  redis = new Redis(inject('redisUrl'))
  log = new EventLog(redis, prefix, undefined)
})

afterAll(() => redis.quit())

describe('the events of a running job', () => {
  it('are read from any position, and end where the job ended', async () => {
    await log.append('one', 0, ['a', 'b'])
    await log.append('one', 2, ['a', 'b', 'c'])
    expect(await log.read('one', 1)).toEqual({ events: ['b', 'c'], isEnded: false })
    await log.end('one')
    expect(await log.read('one', 2)).toEqual({ events: ['c'], isEnded: true })
    expect(await log.size('one')).toBe(3)
  })

  it('have one event at each place, that of the first process', async () => {
    await log.append('two', 0, ['a'])
    await expect(log.append('two', 0, ['other'])).rejects.toThrow()
    expect(await log.read('two', 0)).toEqual({ events: ['a'], isEnded: false })
  })

  it('are added again if Redis lost them', async () => {
    await log.append('three', 0, ['a', 'b'])
    await lose('three')
    await log.append('three', 2, ['a', 'b', 'c'])
    expect(await log.read('three', 0)).toEqual({ events: ['a', 'b', 'c'], isEnded: false })
  })

  it('never skip lost events: a reader waits, also behind the end', async () => {
    await log.append('four', 0, ['a', 'b'])
    await lose('four')
    await redis.xadd(`${prefix}:job-events:four`, '0-3', 'e', 'c')
    expect(await log.read('four', 1)).toEqual({ events: [], isEnded: false })
    await lose('four')
    await log.end('four')
    expect(await log.read('four', 1)).toEqual({ events: [], isEnded: false })
  })
})
