import type { Redis } from 'ioredis'

import type { Logger } from '#shared/logger.ts'

import type { QueueKeys } from './keys.ts'

/** Longer than the fetch of any job takes. */
const TOMBSTONE_TTL_MS = 60_000

/**
 * Stops a run on any worker. The tombstone stops a worker that is just fetching the job, the
 * message a worker that runs it. (The producer removes a waiting job from its queue.)
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

/** Calls back for every cancelled job. Tombstones make up for messages lost in a reconnect. */
export async function listenForCancels(
  subscriber: Redis,
  keys: QueueKeys,
  { onCancel, log }: { readonly onCancel: (queuedId: string) => void; readonly log: Logger },
): Promise<void> {
  subscriber.on('message', (channel: string, queuedId: string) => {
    if (channel === keys.cancelChannel) onCancel(queuedId)
  })
  await subscriber.subscribe(keys.cancelChannel)
  // Subscribes after every reconnect. The client library could do so itself, but its rejection when
  // the connection closes before Redis answers could not be caught.
  subscriber.on('ready', () => {
    subscriber.subscribe(keys.cancelChannel).catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error)
      log.debug({ operation: 'cancel.listen', reason }, 'not subscribed again')
    })
  })
  log.debug({ operation: 'cancel.listen' }, 'listening for cancelled jobs')
}
