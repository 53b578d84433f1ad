import type { Redis } from 'ioredis'

import type { Logger } from '../logger.ts'
import type { QueueKeys } from './keys.ts'

/** Long enough for any job that is being fetched at this moment. */
const TOMBSTONE_TTL_MS = 60_000

/**
 * Stops a run wherever it is: the tombstone stops the worker that is just fetching it, the message
 * the one that runs it. (A waiting job is removed from its queue by the producer.)
 */
export async function announceCancel(
  redis: Redis,
  keys: QueueKeys,
  queuedId: string,
): Promise<void> {
  const pipeline = redis.pipeline()
  pipeline.set(keys.cancelled(queuedId), '1', 'PX', TOMBSTONE_TTL_MS)
  pipeline.publish(keys.cancelChannel, queuedId)
  await pipeline.exec()
}

/**
 * Calls back for every cancelled job. Messages lost in a reconnect are made up for by tombstones.
 */
export async function listenForCancels(
  subscriber: Redis,
  keys: QueueKeys,
  { onCancel, log }: { readonly onCancel: (queuedId: string) => void; readonly log: Logger },
): Promise<void> {
  subscriber.on('message', (channel: string, queuedId: string) => {
    if (channel === keys.cancelChannel) onCancel(queuedId)
  })
  await subscriber.subscribe(keys.cancelChannel)
  // After a reconnect. The client library would do so by itself, and nothing would catch what it
  // throws when the connection is closed before Redis has answered.
  subscriber.on('ready', () => {
    subscriber.subscribe(keys.cancelChannel).catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error)
      log.debug({ operation: 'cancel.listen', reason }, 'not subscribed again')
    })
  })
  log.debug({ operation: 'cancel.listen' }, 'listening for cancelled jobs')
}
