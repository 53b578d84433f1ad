import { once } from 'node:events'

import { afterEach, beforeEach, expect, it } from 'vitest'

import { listenForCancels } from '#shared/queue/cancellation.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { type FaultProxy, openFaultProxy } from '#test/support/fault-proxy.ts'
import type { PrivateRedis } from '#test/support/queue.ts'
import { eventually, freshPrefix, log, startRedis } from '#test/support/queue.ts'

let server: PrivateRedis
let proxy: FaultProxy
const unhandled: unknown[] = []
const keepUnhandled = (reason: unknown): number => unhandled.push(reason)

beforeEach(async () => {
  server = await startRedis()
  proxy = await openFaultProxy(Number(new URL(server.url).port))
  process.on('unhandledRejection', keepUnhandled)
})

afterEach(async () => {
  process.off('unhandledRejection', keepUnhandled)
  await proxy.close()
  await server.close()
})

it('a subscriber that is closed before Redis subscribed it again rejects nothing', async () => {
  const subscriber = await openRedis(`redis://127.0.0.1:${proxy.port}`, 'worker', log)
  const keys = queueKeys(freshPrefix())
  await listenForCancels(subscriber, keys, { onCancel: () => {}, log })
  proxy.cut()
  await once(subscriber, 'close')
  proxy.mend()
  await once(subscriber, 'ready')
  // The subscription has been sent, and nothing of this socket is passed on.
  proxy.abandon()
  const ended = once(subscriber, 'end')
  subscriber.disconnect()
  await ended
  // Node reports what nothing has caught after the microtasks of the event.
  await new Promise(setImmediate)
  expect(unhandled).toEqual([])
})

it('a subscriber receives cancelled jobs again after a reconnect', async () => {
  const subscriber = await openRedis(`redis://127.0.0.1:${proxy.port}`, 'worker', log)
  const publisher = await openRedis(server.url, 'worker', log)
  const keys = queueKeys(freshPrefix())
  const cancelled: string[] = []
  await listenForCancels(subscriber, keys, { onCancel: (id) => cancelled.push(id), log })
  proxy.cut()
  await once(subscriber, 'close')
  proxy.mend()
  await eventually(async () => (await publisher.publish(keys.cancelChannel, 'job-1')) === 1)
  await eventually(() => cancelled.includes('job-1'))
  subscriber.disconnect()
  publisher.disconnect()
})
