import type { Redis } from 'ioredis'

import type { Reply } from '#shared/contracts/reply.ts'
import type { Logger } from '#shared/logger.ts'

import { type ContentCipher, readContent } from './content-cipher.ts'
import { encryptedStream, type QueueKeys } from './keys.ts'

const BLOCK_MS = 1000
const FRAMES_PER_READ = 256
const OWNER_TTL_MS = 1500
const OWNER_HEARTBEAT_MS = 300
const STREAM_TTL_MS = 60_000

/** The connections and the owner of an inbox. */
interface ReplyInboxOptions {
  /** Used only by the blocking read. */
  readonly reader: Redis
  /** Used for the short commands. */
  readonly redis: Redis
  readonly keys: QueueKeys
  readonly instanceId: string
  readonly log: Logger
  /** Decrypts replies. Workers encrypt only for an owner that has a cipher. */
  readonly cipher?: ContentCipher | undefined
}

/**
 * The replies to one API process: one blocking read, distributed by job id. The inbox keeps the id
 * of the last frame read, so that a reconnect loses nothing, and announces that this process is
 * alive.
 */
export class ReplyInbox {
  readonly replyTo: string
  readonly #options: ReplyInboxOptions
  readonly #listeners = new Map<string, (reply: Reply) => void>()
  /** Streams of single jobs that are also read, with the last id of each. */
  readonly #followed = new Map<string, string>()
  #lastId = '0-0'
  #isClosed = false
  #reading: Promise<void> = Promise.resolve()
  #heartbeatTimer: NodeJS.Timeout | undefined

  constructor(options: ReplyInboxOptions) {
    this.#options = options
    const stream = options.keys.replyStream(options.instanceId)
    this.replyTo = options.cipher === undefined ? stream : encryptedStream(stream)
  }

  /** Reads until `close`. Resolves when this process is announced; rejects if Redis is away. */
  async start(): Promise<void> {
    const announced = this.#sendHeartbeat()
    this.#heartbeatTimer = setInterval(
      () => void this.#sendHeartbeat().catch(() => {}),
      OWNER_HEARTBEAT_MS,
    )
    this.#options.reader.on('ready', this.#onReady)
    this.#reading = this.#read()
    await announced
  }

  /** Opens a listener. It must precede the enqueue; otherwise a fast answer is discarded. */
  open(jobId: string, listener: (reply: Reply) => void): void {
    this.#listeners.set(jobId, listener)
  }

  /** Also reads the stream of one job, starting after `lastId`. */
  follow(stream: string, lastId: string): void {
    this.#followed.set(stream, lastId)
    // The current blocking read does not include the new stream: an empty frame ends it.
    this.#options.redis.xadd(this.replyTo, '*', 'f', '[]').catch(() => {
      // The blocked read ends by itself within a second.
    })
  }

  unfollow(stream: string): void {
    this.#followed.delete(stream)
  }

  shut(jobId: string): void {
    this.#listeners.delete(jobId)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearInterval(this.#heartbeatTimer)
    this.#options.reader.off('ready', this.#onReady)
    this.#options.reader.disconnect()
    await this.#reading
    await this.#options.redis
      .del(this.replyTo, this.#options.keys.owner(this.replyTo))
      .catch(() => undefined)
  }

  /** Keys expire with this process; read frames are trimmed on the way. */
  async #sendHeartbeat(): Promise<void> {
    const { redis, keys } = this.#options
    const pipeline = redis.pipeline()
    pipeline.set(keys.owner(this.replyTo), '1', 'PX', OWNER_TTL_MS)
    pipeline.pexpire(this.replyTo, STREAM_TTL_MS)
    await pipeline.exec()
    await this.#trim()
  }

  async #read(): Promise<void> {
    const { reader, log } = this.#options
    while (!this.#isClosed) {
      try {
        const answer = await reader.xreadBuffer(
          'COUNT',
          FRAMES_PER_READ,
          'BLOCK',
          BLOCK_MS,
          'STREAMS',
          this.replyTo,
          ...this.#followed.keys(),
          this.#lastId,
          ...this.#followed.values(),
        )
        for (const [stream, frames] of answer ?? [])
          for (const frame of frames) this.#accept(stream.toString(), frame)
      } catch (error) {
        if (this.#isClosed) return
        const reason = error instanceof Error ? error.message : String(error)
        log.warn({ operation: 'reply.read', reason }, 'reply read failed')
        // After a time-out the socket stays blocked, so a new connection is opened.
        if (/timed out/i.test(reason)) reader.disconnect(true)
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    }
  }

  #accept(stream: string, [idBytes, fields]: [id: Buffer, fields: Buffer[]]): void {
    const id = idBytes.toString()
    const { cipher, log } = this.#options
    if (stream === this.replyTo) this.#lastId = id
    else if (this.#followed.has(stream)) this.#followed.set(stream, id)
    for (const reply of parseFrame(fields, { replyTo: stream, cipher, log }))
      this.#listeners.get(reply.jobId)?.(reply)
  }

  /**
   * Trims the frames that were read. After a failover the ids may start before the last one read:
   * such frames are unread, so the stream is read from its beginning; `seq` identifies repeated
   * replies.
   */
  async #trim(): Promise<void> {
    if (this.#lastId === '0-0') return
    const { redis } = this.#options
    const [newest] = await redis.xrevrange(this.replyTo, '+', '-', 'COUNT', 1)
    if (newest === undefined) return
    if (compareIds(newest[0], this.#lastId) < 0) this.#lastId = '0-0'
    else await redis.xtrim(this.replyTo, 'MINID', '~', this.#lastId)
  }

  #onReady = (): void => {
    void this.#sendHeartbeat().catch(() => {})
  }
}

/** The stream of a frame and its reader. */
interface FrameSource {
  readonly replyTo: string
  readonly cipher: ContentCipher | undefined
  readonly log: Logger
}

/** The context that an encrypted frame is bound to. */
export function frameContext(replyTo: string): string {
  return `replies in ${replyTo}`
}

/** The replies of one frame of a stream. */
export function parseFrame(
  fields: readonly Buffer[],
  { replyTo, cipher, log }: FrameSource,
): readonly Reply[] {
  const bytes = fields[1]
  if (bytes === undefined) return []
  try {
    const text = readContent(bytes, cipher, frameContext(replyTo)).toString('utf8')
    return JSON.parse(text) as Reply[]
  } catch (error) {
    // The writer is foreign or has another key, so the frame is skipped. A syntax error would quote
    // the frame.
    const reason = error instanceof SyntaxError ? 'not JSON' : String(error)
    log.error({ operation: 'reply.read', reason }, 'unreadable reply frame')
    return []
  }
}

function compareIds(a: string, b: string): number {
  const [aMs = 0, aSeq = 0] = a.split('-').map(Number)
  const [bMs = 0, bSeq = 0] = b.split('-').map(Number)
  return aMs - bMs || aSeq - bSeq
}
