import { backlogOf, nameOf, type QueueRef, type QueueStates } from '../queue/depth.ts'
import { json, type PlainHandler } from './metrics-server.ts'

/** Below this path each queue of the catalogue tells its backlog. */
export const BACKLOG_PATH = '/metrics-api/queues/'

/**
 * Tells an autoscaler how much work a queue holds: `backlog` is what waits, with or without a
 * priority, and what runs. The length of no single Redis list says that.
 */
export function backlogHandler(
  queues: readonly QueueRef[],
  readStates: (queue: QueueRef) => Promise<QueueStates>,
): PlainHandler {
  const byName = new Map(queues.map((queue) => [nameOf(queue), queue]))
  return async (rest) => {
    // A name is itself encoded for BullMQ; clients may encode it once more for the path, or not.
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
    // What is not encoded stands for itself.
    return text
  }
}
