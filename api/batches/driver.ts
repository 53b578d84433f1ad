import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'

import { LineTooLongError } from '#api/http/lines.ts'
import type { ExecuteBatchable } from '#api/inference/batchable.ts'
import { storageLimitExceeded } from '#api/stored/stored-bytes-store.ts'
import { presentErrorBody } from '#api/v1/error-dialect.ts'
import { FairSlots } from '#api/v1/fair-slots.ts'
import { PollLoop } from '#api/v1/poll-loop.ts'
import type { BatchRow, InputFault } from '#shared/db/schema/batches.ts'
import { ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import type { Batches } from './batch-store.ts'
import { type FinalizeServices, finalize } from './finalize.ts'
import { FaultyInputError, readInput, within } from './input-lines.ts'
import { type ClaimedLine, type LineAnswer, lineName } from './line-store.ts'
import { runLine } from './run-line.ts'

export interface DriverServices extends FinalizeServices {
  readonly batches: Batches
  readonly execute: ExecuteBatchable
  readonly log: Logger
}

/**
 * Lines that one process runs at a time: one organization can take 32, which leaves slots for
 * others.
 */
const SLOTS = { total: 40, reserved: 8 }
/** The claims of a dead process expire after this time. */
const LEASE_SECONDS = 15
/** Batches that one process validates or finalizes at a time, each from another organization. */
const STEWARDED_MAX = 2
/** Organizations that are remembered in the order in which their batches were served. */
const SERVED_MAX = 1000
const FINISH_TRIES = 3
const FINISH_PAUSE_MS = 1000

/**
 * Drives the batches of a database together with all other processes: validates inputs, runs lines,
 * writes the files. Everything it claims is leased, so that another process continues when it dies.
 */
export class BatchDriver {
  readonly #services: DriverServices
  readonly #leaseId = randomUUID()
  readonly #running = new Map<
    string,
    { readonly abort: AbortController; readonly end: Promise<void> }
  >()
  readonly #slots = new FairSlots(SLOTS)
  /** By organization. */
  readonly #stewarded = new Map<string, Promise<void>>()
  /** Organizations whose batches were validated or finalized, the least recent first. */
  readonly #served = new Set<string>()
  readonly #loop: PollLoop

  constructor(services: DriverServices) {
    this.#services = services
    this.#loop = new PollLoop(() => this.#look())
  }

  /** Releases every unfinished claim. */
  async stop(): Promise<void> {
    await this.#loop.stop()
    for (const { abort } of this.#running.values()) abort.abort()
    await Promise.all([...this.#running.values()].map(({ end }) => end))
    await Promise.all(this.#stewarded.values())
  }

  async #look(): Promise<boolean> {
    try {
      return (await this.#claim()) && this.#slots.room.limit > 0
    } catch (error) {
      this.#services.log.warn({ operation: 'batch.look', err: error }, 'batches wait')
      return false
    }
  }

  /** Claims work; returns whether it found any. */
  async #claim(): Promise<boolean> {
    const { batches, lines } = this.#services
    await batches.settle()
    if (this.#running.size > 0) await this.#renewLines()
    if (this.#stewarded.size > 0) await batches.renew(this.#leaseId, LEASE_SECONDS)
    while (this.#stewarded.size < STEWARDED_MAX) {
      if (!(await this.#takeStewardship())) break
    }
    let hasFound = false
    while (!this.#loop.isStopping && this.#slots.room.limit > 0) {
      const claimed = await lines.claim(this.#leaseId, LEASE_SECONDS, this.#slots.room)
      if (claimed.length === 0) return hasFound
      hasFound = true
      for (const line of claimed) this.#start(line)
    }
    return hasFound
  }

  /** Stops lines of cancelled batches, and lines that another process has claimed since. */
  async #renewLines(): Promise<void> {
    const before = [...this.#running]
    const wanted = await this.#services.lines.renew(this.#leaseId, LEASE_SECONDS)
    for (const [name, { abort }] of before) if (!wanted.has(name)) abort.abort()
  }

  #start(line: ClaimedLine): void {
    const abort = new AbortController()
    const name = lineName(line)
    const freeSlot = this.#slots.take(line.organizationId)
    const end = this.#runLine(line, abort.signal)
      .catch((error: unknown) => {
        // The lease expires, and the line runs again.
        this.#services.log.warn({ operation: 'batch.line', err: error }, 'line left to its lease')
      })
      .finally(() => {
        this.#running.delete(name)
        freeSlot()
        this.#loop.wake()
      })
    this.#running.set(name, { abort, end })
  }

  async #runLine(line: ClaimedLine, signal: AbortSignal): Promise<void> {
    const { lines, execute, log } = this.#services
    const outcome = await runLine(line, { execute, log, signal })
    if (outcome.type === 'answered') await this.#finish(line, outcome.answer)
    else await lines.release(line, this.#leaseId, outcome)
  }

  /** Writing an answer is retried, because the work is already done. */
  async #finish(line: ClaimedLine, finished: LineAnswer): Promise<void> {
    const { batches, lines } = this.#services
    for (let tries = 1; ; tries += 1) {
      try {
        const fits = await batches.hasRoom(line.organizationId, finished.body.length)
        const answer = fits ? finished : { ...finished, ...NO_ROOM }
        await lines.finish(line, this.#leaseId, answer)
        return
      } catch (error) {
        if (tries === FINISH_TRIES || this.#loop.isStopping) throw error
        await setTimeout(FINISH_PAUSE_MS)
      }
    }
  }

  /**
   * Leases one batch at a time, so that large ones of an organization do not delay those of others.
   */
  async #takeStewardship(): Promise<boolean> {
    const rotation = { busy: [...this.#stewarded.keys()], served: [...this.#served] }
    const batch = await this.#services.batches.lease(this.#leaseId, LEASE_SECONDS, rotation)
    if (batch === undefined) return false
    const { organizationId } = batch
    this.#noteServed(organizationId)
    const stewardship = this.#steward(batch)
      .catch((error: unknown) => {
        const fields = { operation: 'batch.steward', batchId: batch.id, err: error }
        this.#services.log.warn(fields, 'batch left to its lease')
      })
      .finally(() => {
        this.#stewarded.delete(organizationId)
        this.#loop.wake()
      })
    this.#stewarded.set(organizationId, stewardship)
    return true
  }

  #noteServed(organizationId: string): void {
    this.#served.delete(organizationId)
    this.#served.add(organizationId)
    const [oldest] = this.#served
    if (this.#served.size > SERVED_MAX && oldest !== undefined) this.#served.delete(oldest)
  }

  async #steward(batch: BatchRow): Promise<void> {
    if (batch.status === 'validating') await this.#validate(batch)
    else await finalize(batch, this.#leaseId, this.#services)
  }

  async #validate(batch: BatchRow): Promise<void> {
    const { batches, store } = this.#services
    const input = { objectKey: batch.inputObjectKey, endpoint: batch.endpoint }
    try {
      const hasRoom = (bytes: number) => batches.hasRoom(batch.organizationId, bytes)
      await batches.begin(batch.id, this.#leaseId, within(readInput(store, input), hasRoom))
    } catch (error) {
      const faults = faultsOf(error)
      if (faults === undefined) throw error
      await this.#services.announce?.(batch, 'failed')
      await batches.reject(batch.id, this.#leaseId, faults)
    }
  }
}

/** The answer of a line whose own answer does not fit into the storage. */
const NO_ROOM = {
  statusCode: storageLimitExceeded().status,
  body: JSON.stringify(presentErrorBody(storageLimitExceeded())),
}

function faultsOf(error: unknown): readonly InputFault[] | undefined {
  if (error instanceof FaultyInputError) return error.faults
  if (error instanceof LineTooLongError) {
    const message = `In the input file, ${error.message}.`
    return [{ code: 'line_too_long', message, param: null, line: null }]
  }
  if (error instanceof ServiceError && error.kind === 'notFound') {
    const message = 'The input file no longer exists.'
    return [{ code: 'file_not_found', message, param: 'input_file_id', line: null }]
  }
  return undefined
}
