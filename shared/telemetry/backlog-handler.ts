import { backlogOf, nameOf, type QueueRef, type QueueStates } from '#shared/queue/depth.ts'

import { json, type PlainHandler } from './metrics-server.ts'

/** The path below which each queue of the catalogue reports its backlog. */
export const BACKLOG_PATH = '/metrics-api/queues/'

/**
 * Reports the work of a queue to an autoscaler: `backlog` counts waiting jobs, with or without
 * priority, and active ones. No single Redis list has this length.
 */
export function backlogHandler(
  queues: () => readonly QueueRef[],
  readStates: (queue: QueueRef) => Promise<QueueStates>,
): PlainHandler {
  return async (rest) => {
    const byName = new Map(queues().map((queue) => [nameOf(queue), queue]))
    // BullMQ encodes the queue name; clients may encode it once more for the path.
    const queue = byName.get(rest) ?? byName.get(decoded(rest))
    if (queue === undefined) return json(404, { error: 'the catalogue has no such queue' })
    const states = await readStates(queue)
    return json(200, { queue: nameOf(queue), backlog: backlogOf(states), states })
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    // A name with invalid escapes is taken literally.
    return text
  }
}
