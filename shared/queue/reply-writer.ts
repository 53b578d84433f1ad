import type { Redis } from 'ioredis'

import type { ReplyBody } from '#shared/contracts/reply.ts'
import type { Logger } from '#shared/logger.ts'

import type { ContentCipher } from './content-cipher.ts'
import { isJobStream, readsEncrypted } from './keys.ts'
import { frameContext } from './reply-inbox.ts'

/** Replies in one frame. */
const FRAME_REPLIES_MAX = 512
/** Frames that a stream keeps until its reader trims it. */
const STREAM_FRAMES_MAX = 20_000
const CAP = ['MAXLEN', '~', STREAM_FRAMES_MAX] as const
const STREAM_TTL_MS = 60_000
const TOUCH_INTERVAL_MS = 5000
const TOUCHED_MAX = 1000
/** Characters of one reply: 2,048 vectors of 4,096 values take 45 million. */
const REPLY_CHARS_MAX = 48 * 1024 * 1024
/** Characters that may wait for Redis per stream; beyond them its replies are dropped. */
const PENDING_CHARS_MAX = 2 * REPLY_CHARS_MAX
const RETRY_DELAY_MS_MAX = 500
/**
 * Tokens that follow a frame within this time join the next frame: readers see no difference, and a
 * model of a thousand tokens per second would spend more time on sending tokens than on computing
 * them.
 */
const FRAME_INTERVAL_MS = 30
/** Lists of deltas that are joined into one reply. */
const JOINED_MAX = 64

/** One run of a job, as its replies name it. */
export interface ReplySource {
  readonly jobId: string
  readonly epoch: number
  readonly runId: string
  /** The sequence number of its last reply. */
  seq: number
}

interface Pending {
  /** The JSON of the reply, to which further deltas may be added while it waits. */
  text: string
  readonly end: '' | ']}'
  numJoined: number
}

type DeltaBody = Extract<ReplyBody, { readonly type: 'delta' }>

interface Outlet {
  pending: Pending[]
  /** The last pending reply of each run, where that reply holds deltas. */
  readonly open: Map<ReplySource, Pending>
  pendingChars: number
  /** A pending reply must not wait for the interval between frames. */
  isUrgent: boolean
  isFlushScheduled: boolean
  timer: NodeJS.Timeout | undefined
  /** The chain of writes: one is in flight at a time, so that order survives retries. */
  writing: Promise<void> | undefined
}

/**
 * Sends replies to the owners of jobs. Replies pushed together (the tokens of an engine step) leave
 * as one frame per owner; replies pushed while a frame is in flight, or shortly after it, join the
 * next. Starts and ends are sent without delay. A frame is repeated until Redis accepts it; `seq`
 * lets the owner drop repetitions.
 */
export class ReplyWriter {
  readonly #redis: Redis
  readonly #log: Logger
  readonly #onOverflow: (replyTo: string) => void
  readonly #cipher: ContentCipher | undefined
  readonly #outlets = new Map<string, Outlet>()
  readonly #touchedAtMs = new Map<string, number>()
  readonly #wroteAtMs = new Map<string, number>()
  #isClosed = false

  constructor(
    redis: Redis,
    log: Logger,
    onOverflow: (replyTo: string) => void,
    cipher?: ContentCipher,
  ) {
    this.#cipher = cipher
    this.#redis = redis
    this.#log = log
    this.#onOverflow = onOverflow
  }

  /**
   * Adds a numbered reply of a run; deltas join pending deltas of the same run. False for a reply
   * that is too large to be sent, which is not added.
   */
  push(replyTo: string, replySource: ReplySource, body: ReplyBody): boolean {
    const outlet = this.#outlet(replyTo)
    const added =
      body.type === 'delta'
        ? addDeltas(outlet, replySource, body)
        : addReply(outlet, replySource, body)
    if (added === undefined) return false
    outlet.pendingChars += added
    if (body.type !== 'delta' && body.type !== 'progress') outlet.isUrgent = true
    if (outlet.pendingChars > PENDING_CHARS_MAX) this.#overflow(replyTo)
    else this.#scheduleFlush(replyTo, outlet)
    return true
  }

  /** Resolves when all replies for an owner are in its stream, or were dropped. */
  async flushed(replyTo: string): Promise<void> {
    const outlet = this.#outlets.get(replyTo)
    if (outlet === undefined) return
    outlet.isUrgent = true
    this.#flush(replyTo, outlet)
    await outlet.writing
  }

  /** Drops the pending replies of an owner that has ended. */
  discard(replyTo: string): void {
    // Later replies go to a stream that expires.
    this.#touchedAtMs.delete(replyTo)
    const outlet = this.#outlets.get(replyTo)
    if (outlet === undefined) return
    outlet.pending = []
    outlet.open.clear()
    outlet.pendingChars = 0
    clearTimeout(outlet.timer)
    this.#outlets.delete(replyTo)
  }

  /** Drops unwritten replies; call `flushed` before. */
  close(): void {
    this.#isClosed = true
    for (const { timer } of this.#outlets.values()) clearTimeout(timer)
    this.#outlets.clear()
  }

  /** Runs after the synchronous work of this event-loop turn, such as the tokens of a step. */
  #scheduleFlush(replyTo: string, outlet: Outlet): void {
    if (outlet.writing !== undefined || outlet.isFlushScheduled) return
    if (outlet.timer !== undefined && !outlet.isUrgent) return
    const sinceMs = performance.now() - (this.#wroteAtMs.get(replyTo) ?? Number.NEGATIVE_INFINITY)
    if (outlet.isUrgent || sinceMs >= FRAME_INTERVAL_MS) {
      outlet.isFlushScheduled = true
      queueMicrotask(() => {
        outlet.isFlushScheduled = false
        this.#flush(replyTo, outlet)
      })
    } else {
      outlet.timer = setTimeout(() => this.#flush(replyTo, outlet), FRAME_INTERVAL_MS - sinceMs)
    }
  }

  #flush(replyTo: string, outlet: Outlet): void {
    clearTimeout(outlet.timer)
    outlet.timer = undefined
    if (outlet.pending.length > 0) outlet.writing ??= this.#drain(replyTo, outlet)
  }

  #outlet(replyTo: string): Outlet {
    let outlet = this.#outlets.get(replyTo)
    if (outlet === undefined) {
      outlet = {
        pending: [],
        open: new Map(),
        pendingChars: 0,
        isUrgent: false,
        isFlushScheduled: false,
        timer: undefined,
        writing: undefined,
      }
      this.#outlets.set(replyTo, outlet)
    }
    return outlet
  }

  async #drain(replyTo: string, outlet: Outlet): Promise<void> {
    while (outlet.pending.length > 0 && !this.#isClosed) {
      const texts = outlet.pending.splice(0, FRAME_REPLIES_MAX).map(({ text, end }) => text + end)
      outlet.open.clear()
      for (const text of texts) outlet.pendingChars -= text.length
      if (outlet.pending.length === 0) outlet.isUrgent = false
      await this.#write(replyTo, this.#encode(replyTo, `[${texts.join(',')}]`))
      this.#noteWrite(replyTo)
      // Replies that arrived during the write wait for the interval unless they are urgent or too
      // many for one frame.
      if (!outlet.isUrgent && outlet.pending.length < FRAME_REPLIES_MAX) break
    }
    outlet.writing = undefined
    if (this.#outlets.get(replyTo) !== outlet || this.#isClosed) return
    if (outlet.pending.length > 0) this.#scheduleFlush(replyTo, outlet)
    // An owner without jobs in flight takes no memory; the map is bounded by the live owners.
    else this.#outlets.delete(replyTo)
  }

  /** The frame as written: encrypted for owners that can decrypt it. */
  #encode(replyTo: string, frame: string): string | Buffer {
    if (this.#cipher === undefined || !readsEncrypted(replyTo)) return frame
    return this.#cipher.encrypt(frame, frameContext(replyTo))
  }

  #noteWrite(replyTo: string): void {
    if (this.#wroteAtMs.size >= TOUCHED_MAX) this.#wroteAtMs.clear()
    this.#wroteAtMs.set(replyTo, performance.now())
  }

  async #write(replyTo: string, frame: string | Buffer): Promise<void> {
    for (let attempt = 1; !this.#isClosed; attempt += 1) {
      try {
        if (isJobStream(replyTo)) {
          // The owner created the stream and set its time to live. If the stream is gone, so is the
          // owner.
          await this.#redis.xadd(replyTo, 'NOMKSTREAM', ...CAP, '*', 'f', frame)
          return
        }
        if (!this.#isFirst(replyTo)) {
          await this.#redis.xadd(replyTo, ...CAP, '*', 'f', frame)
          return
        }
        const pipeline = this.#redis.pipeline()
        pipeline.xadd(replyTo, ...CAP, '*', 'f', frame)
        // The owner refreshes the time to live too; this covers a stream that outlives its owner.
        pipeline.pexpire(replyTo, STREAM_TTL_MS)
        const results = await pipeline.exec()
        const error = results?.[0]?.[0]
        if (error === null) return
        throw error ?? new Error('no answer')
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error)
        if (attempt === 1) this.#log.warn({ operation: 'reply.write', reason }, 'reply delayed')
        if (/^WRONGTYPE/.test(reason)) return
        await new Promise((resolve) =>
          setTimeout(resolve, Math.min(25 * attempt, RETRY_DELAY_MS_MAX)),
        )
      }
    }
  }

  /** Whether this process has not set the stream's time to live recently. */
  #isFirst(replyTo: string): boolean {
    const nowMs = performance.now()
    if (nowMs - (this.#touchedAtMs.get(replyTo) ?? -STREAM_TTL_MS) < TOUCH_INTERVAL_MS) return false
    if (this.#touchedAtMs.size > TOUCHED_MAX) this.#touchedAtMs.clear()
    this.#touchedAtMs.set(replyTo, nowMs)
    return true
  }

  #overflow(replyTo: string): void {
    this.#log.error({ operation: 'reply.write' }, 'replies dropped: redis is away for too long')
    this.discard(replyTo)
    this.#onOverflow(replyTo)
  }
}

/**
 * Adds a reply that is independent of earlier ones; returns its number of characters, or undefined
 * if they are too many.
 */
function addReply(outlet: Outlet, replySource: ReplySource, body: ReplyBody): number | undefined {
  const seq = replySource.seq + 1
  const text = JSON.stringify({ ...body, ...replySource, seq })
  if (text.length > REPLY_CHARS_MAX) return undefined
  outlet.open.delete(replySource)
  replySource.seq = seq
  outlet.pending.push({ text, end: '', numJoined: 0 })
  return text.length
}

/** Appends deltas to the run's last pending reply or adds a reply; returns the added characters. */
function addDeltas(outlet: Outlet, replySource: ReplySource, { deltas }: DeltaBody): number {
  const list = JSON.stringify(deltas).slice(1, -1)
  const open = outlet.open.get(replySource)
  if (open !== undefined && open.numJoined < JOINED_MAX) {
    open.text += `,${list}`
    open.numJoined += 1
    return list.length + 1
  }
  replySource.seq += 1
  const head = JSON.stringify({ type: 'delta', ...replySource }).slice(0, -1)
  const pending: Pending = { text: `${head},"deltas":[${list}`, end: ']}', numJoined: 1 }
  outlet.pending.push(pending)
  outlet.open.set(replySource, pending)
  return pending.text.length + pending.end.length
}
