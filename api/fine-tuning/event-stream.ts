import { setTimeout } from 'node:timers/promises'

import type { FastifyReply } from 'fastify'

import { openEventStream } from '#api/http/sse.ts'
import type { TuningEventRow, TuningJobRow } from '#shared/db/schema/fine-tuning.ts'
import type { Turns } from '#shared/turns.ts'

import { OPEN_STATES } from './tuning-states.ts'
import type { TuningStore } from './tuning-store.ts'

const POLL_MS = 300
const EVENTS_PER_READ = 500

/** Streams the events of a job, the oldest first, until it has ended or the client leaves. */
export async function streamTuningEvents(
  reply: FastifyReply,
  options: {
    readonly tuning: Pick<TuningStore, 'find' | 'eventsBehind'>
    /** Shared by all streams of the process. */
    readonly reads: Turns
    readonly job: TuningJobRow
    readonly present: (event: TuningEventRow) => object
  },
): Promise<FastifyReply> {
  const { tuning, reads, job, present } = options
  const stream = openEventStream(reply)
  try {
    let position = 0
    while (!stream.signal.aborted) {
      const { now, events } = await reads.run(async () => ({
        // Read first, because the last event is recorded together with the end.
        now: await tuning.find(job.organizationId, job.id),
        events: await tuning.eventsBehind(job.id, position, EVENTS_PER_READ),
      }))
      position = events.at(-1)?.position ?? position
      const text = events.map((event) => `data: ${JSON.stringify(present(event))}\n\n`).join('')
      if (text !== '') await stream.write(text)
      if (events.length === EVENTS_PER_READ) continue
      if (!OPEN_STATES.some((open) => open === now?.status)) {
        await stream.write('data: [DONE]\n\n')
        break
      }
      await setTimeout(POLL_MS, undefined, { signal: stream.signal }).catch(() => {
        // The client has left.
      })
    }
  } finally {
    stream.end()
  }
  return reply
}
