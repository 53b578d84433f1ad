import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import type { FastifyReply, FastifyRequest } from 'fastify'

import type { Clock } from '#shared/clock.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { CancelledError, failure, type ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import { isFinal, recordAnswer } from './answer-recorder.ts'
import { type FormDigest, formDigestOf, formEnd, readDigest, watchForm } from './form-digest.ts'
import {
  type Beginning,
  type Claim,
  claimOf,
  type IdempotencyStore,
  RENEW_INTERVAL_MS,
  type RecordedAnswer,
} from './idempotency-store.ts'
import type { Gate } from './plugin.ts'
import { callerOf } from './request-context.ts'

const KEY_PATTERN = /^[\x21-\x7e]{1,255}$/
const ANSWER_BYTES_MAX = 8 * 1024 * 1024
/** The time after the deadline at which a request without a client is abandoned. */
const PATIENCE_GRACE_MS = 30_000
const POLL_MS_MIN = 50
const POLL_MS_MAX = 500

interface IdempotencyServices {
  readonly idempotency: IdempotencyStore
  readonly clock: Clock
  readonly log: Logger
  /** Deletes the recorded replies of jobs, after the answer to their request. */
  deleteReplies(jobs: readonly JobEnvelope[]): Promise<void>
  /** How long a request waits for the answer to another request under its key. */
  readonly deadlineSeconds: number
}

/**
 * Serves `Idempotency-Key` on every POST. The first request under a key runs; requests that come
 * meanwhile wait for its answer, which is replayed for a day. When the process dies, the next
 * request under the key adopts its jobs. When the client disconnects, the request continues, and
 * the next one gets its answer. Server errors, refusals by limits, answers over 8 MiB and answers
 * beyond the daily bounds are not stored: the next request runs again.
 */
export function createIdempotencyGate(services: IdempotencyServices): Gate {
  return async (request, reply) => {
    const key = keyOf(request)
    if (key === undefined) return undefined
    const claim = claimOf(ownerOf(request), key, fingerprintOf(request))
    const beginning = await beginOrWait(services, request, claim)
    const digest = formDigestOf(request.raw)
    if (beginning.state === 'done') {
      const { form, answer } = beginning
      // Forms of equal length may differ: the recorded answer must belong to this content.
      if (digest !== undefined && form !== undefined) {
        const value = await readDigest(request.raw, digest)
        if (!services.idempotency.isForm(form, value)) throw otherRequest()
      }
      return replay(reply, answer)
    }
    if (beginning.state !== 'mine') throw otherRequest()
    if (digest !== undefined) watchForm(request.raw, digest)
    const run = { claim, beginning, digest, jobs: new Map(), overListeners: [] }
    makeDurable(services, request, run)
    watch(services, { request, reply }, run)
    return undefined
  }
}

/** The owner of the key; the key of a background job belongs to its organization. */
function ownerOf(request: FastifyRequest): Parameters<typeof claimOf>[0] {
  const caller = callerOf(request)
  const { organizationId } = caller
  if (request.context.stored === undefined) return caller
  return { organizationId, scopes: null, modelIds: null }
}

/** The key of the client, or that of the background job whose request this is. */
function keyOf({ context, headers, method }: FastifyRequest): string | undefined {
  // Clients cannot send a key with a space.
  if (context.stored !== undefined) return `job ${context.stored.id}`
  const header = headers['idempotency-key']
  if (header === undefined || method !== 'POST') return undefined
  if (typeof header !== 'string' || !KEY_PATTERN.test(header)) {
    throw invalidKey('expected 1 to 255 printable ASCII characters without spaces.')
  }
  return header
}

/** A request that runs under a key. */
interface Run {
  readonly claim: Claim
  readonly beginning: Extract<Beginning, { state: 'mine' }>
  readonly digest: FormDigest | undefined
  /** Its jobs by their number. */
  readonly jobs: Map<number, JobEnvelope>
  readonly overListeners: (() => void)[]
}

/** Makes the jobs of a request durable, and adopts those of a dead process. */
function makeDurable(
  { idempotency }: IdempotencyServices,
  request: FastifyRequest,
  { claim, beginning, digest, jobs, overListeners }: Run,
): void {
  let count = 0
  const { stored } = request.context
  request.context.durable = {
    id: stored?.id ?? claim.id,
    startedAtMs: stored?.createdAtMs ?? beginning.startedAtMs,
    isAdopted: beginning.jobs.size > 0,
    onOver: (listener) => overListeners.push(listener),
    nextJob() {
      const number = count
      count += 1
      const adopted = beginning.jobs.get(number)
      // The form has been read by now.
      const { form } = beginning
      const isOther = form !== undefined && !idempotency.isForm(form, digest?.value)
      if (adopted !== undefined && isOther) throw otherRequest()
      if (adopted !== undefined) jobs.set(number, adopted.envelope)
      return {
        adopted,
        async keep(job) {
          jobs.set(number, job.envelope)
          return idempotency.keepJob(claim, number, { job, form: digest?.value })
        },
      }
    },
  }
}

/** Polls until the request may run or has an answer; the lease of a dead process expires. */
async function beginOrWait(
  { idempotency, clock, deadlineSeconds }: IdempotencyServices,
  request: FastifyRequest,
  claim: Claim,
): Promise<Beginning> {
  const lastAtMs = clock.monotonic() + deadlineSeconds * 1000
  let pauseMs = POLL_MS_MIN
  while (true) {
    const beginning = await idempotency.begin(claim).catch((cause: unknown) => {
      // Running it without the record could run it twice.
      throw failure.overloaded('The service is not able to take requests at the moment.', {
        code: 'service_unavailable',
        retryAfterSeconds: 1,
        cause,
      })
    })
    if (beginning.state !== 'running') return beginning
    if (clock.monotonic() >= lastAtMs) {
      throw failure.deadline('A timeout occurred: the first request under this key still runs.')
    }
    await sleep(pauseMs)
    if (request.raw.socket.destroyed) throw new CancelledError()
    pauseMs = Math.min(POLL_MS_MAX, pauseMs * 1.5)
  }
}

/** Renews the lease while the request runs, then records its answer or releases the key. */
function watch(
  { idempotency, deleteReplies, log, deadlineSeconds }: IdempotencyServices,
  { request, reply }: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  { claim, digest, jobs, overListeners }: Run,
): void {
  const quietly = (work: Promise<void>): void => {
    work.catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error)
      log.warn({ operation: 'idempotency.record', reason }, 'an answer was not kept')
    })
  }
  const renewal = setInterval(() => quietly(idempotency.renew(claim)), RENEW_INTERVAL_MS)
  renewal.unref()
  const patienceMs = deadlineSeconds * 1000 + PATIENCE_GRACE_MS
  recordAnswer(reply, { bytesMax: ANSWER_BYTES_MAX, patienceMs }, (answer) => {
    for (const listener of overListeners) listener()
    const end = async (): Promise<void> => {
      // A route may have answered before the end of a form; when the end never arrived, the
      // recorded answer would be to a request that was never completed.
      if (digest !== undefined) await formEnd(request.raw)
      const hasBrokenOff = request.raw.destroyed && !request.raw.complete
      clearInterval(renewal)
      const isKept = answer !== undefined && isFinal(answer) && !hasBrokenOff
      const isEnded = await (isKept
        ? idempotency.finish(claim, answer, digest?.value)
        : idempotency.discard(claim))
      if (isEnded) await deleteReplies([...jobs.values()])
    }
    quietly(end())
  })
}

function replay(reply: FastifyReply, { status, headers, body }: RecordedAnswer): FastifyReply {
  return reply
    .code(status)
    .headers({ ...headers, 'idempotent-replayed': 'true' })
    .send(body)
}

/**
 * Method, path and body. Form data is not read yet: its length represents its content at first,
 * because every retry chooses another boundary of the same length.
 */
function fingerprintOf({ method, url, body, headers }: FastifyRequest): string {
  const hash = createHash('sha256').update(`${method}\n${url}\n`)
  if (headers['content-type']?.startsWith('multipart/') === true) {
    const length = headers['content-length']
    if (length === undefined) throw invalidKey('a form under a key must state its Content-Length.')
    hash.update(`form\n${length}`)
  } else if (body !== undefined) {
    hash.update(Buffer.isBuffer(body) ? body : JSON.stringify(body))
  }
  return hash.digest('hex')
}

function invalidKey(reason: string): ServiceError {
  return failure.invalidRequest(`Invalid 'Idempotency-Key': ${reason}`, {
    param: 'Idempotency-Key',
    code: 'invalid_idempotency_key',
  })
}

function otherRequest(): ServiceError {
  return failure.unprocessable(
    'This Idempotency-Key was used for another request. Use a new key for each request.',
    { param: 'Idempotency-Key', code: 'idempotency_key_reuse' },
  )
}
