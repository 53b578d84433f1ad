import { createHash } from 'node:crypto'

import type { FastifyRequest } from 'fastify'

import { type Clock, unixSeconds } from '#shared/clock.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { randomId } from '#shared/ids.ts'

/** A job as another process can take it up. */
export interface StoredJob {
  /** Its present epoch. */
  readonly envelope: JobEnvelope
  /**
   * The points at which former owners left the runs of earlier epochs: later replies of these runs
   * are not part of the answer.
   */
  readonly cuts: readonly { readonly epoch: number; readonly lastSeq: number }[]
}

/** A job that outlives the process which holds its client. */
export interface DurableJob {
  /** Left by a process that died; undefined when the job is to be made. */
  readonly adopted: StoredJob | undefined
  /** Resolves when another process would find it. */
  keep(job: StoredJob): Promise<void>
}

/** A request whose jobs outlive its process, so that its answer is the same in another one. */
export interface DurableRequest {
  /** When the first process began with it. */
  readonly startedAtMs: number
  /** Names the request; the ids in its answer are derived from it. */
  readonly id: string
  readonly isAdopted: boolean
  /** Calls back when the request has ended: answered or abandoned, with or without its client. */
  onOver(listener: () => void): void
  /** Its next job, in the order in which the route asks for them. */
  nextJob(): DurableJob
}

/** Where an answer begins: its id and its time. */
export interface AnswerHead {
  /** Unix seconds. */
  readonly created: number
  newId(prefix: string, length?: number): string
}

/** The head of an answer that cannot be requested again. */
export function freshHead(clock: Pick<Clock, 'now'>): AnswerHead {
  return { created: unixSeconds(clock.now()), newId: randomId }
}

/** The head of the answer to a request; the same in every process that answers it. */
export function answerHeadOf(
  { context: { durable } }: Pick<FastifyRequest, 'context'>,
  clock: Pick<Clock, 'now'>,
): AnswerHead {
  return durable === undefined ? freshHead(clock) : durableHead(durable)
}

/** The head of the answer to a durable request. */
export function durableHead({
  id,
  startedAtMs,
}: Pick<DurableRequest, 'id' | 'startedAtMs'>): AnswerHead {
  return {
    created: unixSeconds(startedAtMs),
    newId: (prefix, length) => derivedId(prefix, `${id} ${startedAtMs}`, length),
  }
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'

/** An id that is a function of its source, in the form of a random one. */
export function derivedId(prefix: string, source: string, length = 24): string {
  const bytes = createHash('sha512').update(`${prefix}\n${source}`).digest()
  let id = prefix
  for (let i = 0; i < Math.min(length, bytes.length); i += 1) {
    id += ALPHABET[(bytes[i] as number) % ALPHABET.length]
  }
  return id
}
