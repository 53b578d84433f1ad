import { Redis } from 'ioredis'
import { afterAll, expect, vi } from 'vitest'

/** Every connection that the product or a test of this file opened. */
const opened = new Set<Redis>()
const connect = Redis.prototype.connect
Redis.prototype.connect = function keepOpened(this: Redis, ...args) {
  opened.add(this)
  return connect.apply(this, args)
}

// The first hook of a file runs after all others. A connection that is left open reconnects to
// servers that are gone, and what it still waits for is rejected where nothing catches it.
afterAll(async () => {
  // The worker goes on with other files, each of which looks for its own connections alone.
  Redis.prototype.connect = connect
  await vi.waitFor(
    () => {
      const open = [...opened].filter((redis) => !isClosed(redis))
      const names = open.map(({ status, options }) => `${options.host}:${options.port} ${status}`)
      expect(names, 'connections to Redis that were left open').toEqual([])
    },
    { timeout: 30_000, interval: 20 },
  )
})

/** One that is closed between two attempts keeps the status of the last one, without a timer. */
function isClosed(redis: Redis): boolean {
  const { reconnectTimeout } = redis as unknown as { readonly reconnectTimeout: unknown }
  const { status } = redis
  return status === 'end' || status === 'wait' || (status === 'reconnecting' && !reconnectTimeout)
}
