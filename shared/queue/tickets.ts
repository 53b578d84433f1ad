import type { Redis } from 'ioredis'

import type { QueueKind } from '#shared/contracts/queues.ts'

import { defineScript, runScript } from './connection.ts'
import type { QueueKeys } from './keys.ts'

/** How much a request may push before others. */
export type PriorityClass = 'priority' | 'default' | 'flex' | 'batch'

/** Turns that a class lets others go first: the wait of every class stays bounded. */
const CLASS_OFFSETS = { priority: 0, default: 16, flex: 64, batch: 512 } as const satisfies Record<
  PriorityClass,
  number
>

/** BullMQ's largest priority. */
const PRIORITY_MAX = 2_097_151
const TICKETS_TTL_MS = 3_600_000

/**
 * Assigns tickets. A queue has a current position, that of the job started last; an organization's
 * next job gets the position after its own last one, or after the current one when it has nothing
 * waiting. So the tenth waiting job of one organization is placed behind the first of any other, and
 * jobs that arrive later never push it back further than one round. An empty queue begins anew. A
 * full queue still takes the first waiting job of each organization, up to a quarter beyond its
 * limit, so that no organization can exclude others by filling it.
 *
 * KEYS: tickets hash, BullMQ's `prioritized` set
 * ARGV: organization, depth limit, generation and position of the newest start seen, time to live
 * Returns: admitted (1 or 0), depth, position, generation
 */
const ADMIT = defineScript(`
local depth = redis.call('ZCARD', KEYS[2])
local limit = tonumber(ARGV[2])
local field = 'last:' .. ARGV[1]
local kept = redis.call('HMGET', KEYS[1], 'generation', 'dealt', 'current', field)
local generation = kept[1]
local current = tonumber(kept[3] or '0')
local last = tonumber(kept[4] or '0')
local time = redis.call('TIME')
-- Jobs that got a ticket in the last second may still be on their way into the queue.
local idle = tonumber(time[1]) - tonumber(kept[2] or '0') > 1
local isNew = not generation or (depth == 0 and idle)
if isNew then
  generation = time[1] .. '.' .. time[2]
  current = 0
  last = 0
end
if generation == ARGV[3] and tonumber(ARGV[4]) > current then current = tonumber(ARGV[4]) end
-- A further quarter of the limit is reserved for organizations without a waiting job.
if last <= current then limit = limit + math.ceil(limit / 4) end
if depth >= limit then return {0, depth, 0, ''} end
if isNew then redis.call('DEL', KEYS[1]) end
local position = math.max(current, last) + 1
redis.call('HSET', KEYS[1], 'generation', generation, 'dealt', time[1], 'current', current, field, position)
if kept[2] ~= time[1] then redis.call('PEXPIRE', KEYS[1], ARGV[5]) end
return {1, depth, position, generation}
`)

/** A place in a queue. */
export interface Ticket {
  readonly generation: string
  readonly position: number
}

/** Whether a job was admitted. */
type Admission =
  | { readonly isAdmitted: true; readonly depth: number; readonly ticket: Ticket }
  | { readonly isAdmitted: false; readonly depth: number }

/** The queue and organization of a job. */
interface AdmissionRequest {
  readonly kind: QueueKind
  readonly modelId: string
  readonly organizationId: string
  readonly depthMax: number
  /** The newest ticket whose job was seen to start. */
  readonly newestStart: Ticket | undefined
}

/** Checks the depth of a queue and assigns a ticket in it, in one command. */
export async function assignTicket(
  redis: Redis,
  keys: QueueKeys,
  request: AdmissionRequest,
): Promise<Admission> {
  const { kind, modelId, organizationId, depthMax, newestStart } = request
  const answer = (await runScript(
    redis,
    ADMIT,
    [keys.tickets(kind, modelId), keys.bull(kind, modelId, 'prioritized')],
    [
      organizationId,
      depthMax,
      newestStart?.generation ?? '',
      newestStart?.position ?? 0,
      TICKETS_TTL_MS,
    ],
  )) as [number, number, number, string]
  const [admitted, depth, position, generation] = answer
  if (admitted === 0) return { isAdmitted: false, depth }
  return { isAdmitted: true, depth, ticket: { generation, position } }
}

/** The BullMQ priority of a ticket: never 0, which would outrank all others. */
export function priorityOf({ position }: Ticket, priorityClass: PriorityClass): number {
  return Math.min(position + CLASS_OFFSETS[priorityClass], PRIORITY_MAX)
}
