import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdir, rename, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'

import { failure, ServiceError } from '#shared/errors.ts'

import {
  delayFor,
  type HubFile,
  type HubOptions,
  type HubSource,
  HubUnreachableError,
  openHubFile,
} from './hub.ts'

/** The file to fetch and its target. */
interface DownloadOptions {
  readonly hub: HubOptions
  readonly source: HubSource & { readonly commit: string }
  readonly file: HubFile
  /** The path where the complete file appears atomically. */
  readonly target: string
  /** The file with the bytes received so far, for the next attempt. */
  readonly partFile: string
  readonly signal?: AbortSignal | undefined
  /** Called with the number of bytes received so far. */
  readonly onBytes?: ((bytes: number) => void) | undefined
}

const ATTEMPTS_MAX = 5
const RETRY_DELAY_MS = 300
// A connection without data is closed after this time.
const IDLE_TIMEOUT_MS = 30_000
// Errors of this machine's disk, which another attempt would meet again.
const DISK_FAULTS = [
  ...['ENOSPC', 'EDQUOT', 'EFBIG', 'EROFS', 'EACCES', 'EPERM', 'ENOTDIR', 'EISDIR', 'EIO'],
]

/**
 * Fetches one file, resuming an earlier attempt, and verifies it. Attempts without progress are
 * bounded; a file with a wrong checksum is fetched again once, then refused.
 */
export async function download(options: DownloadOptions): Promise<void> {
  const { file, target, partFile } = options
  await mkdir(dirname(partFile), { recursive: true })
  await mkdir(dirname(target), { recursive: true })
  for (let tries = 0; ; tries++) {
    const wasResumed = (await sizeOf(partFile)) > 0
    await fetchAll(options)
    if ((await checksumOf(partFile, file)) === file.checksum.hex) break
    await rm(partFile, { force: true })
    // Only a file that was assembled from several attempts may be better the second time.
    if (tries > 0 || !wasResumed) {
      throw failure.upstream(
        `${options.source.repository}: ${file.path} came damaged, its checksum is wrong`,
      )
    }
  }
  await rename(partFile, target)
}

/** The checksum of a file in the form that the hub states. */
export async function checksumOf(path: string, { bytes, checksum }: HubFile): Promise<string> {
  const hash = createHash(checksum.kind === 'git' ? 'sha1' : 'sha256')
  // Git hashes a header before the content.
  if (checksum.kind === 'git') hash.update(`blob ${bytes}\0`)
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer)
  return hash.digest('hex')
}

/** Repeats attempts until all bytes have arrived. */
async function fetchAll(options: DownloadOptions): Promise<void> {
  const { file, partFile, signal } = options
  let failures = 0
  for (;;) {
    const before = await sizeOf(partFile)
    if (before === file.bytes && before > 0) return
    try {
      await attempt(options, before > file.bytes ? 0 : before)
      return
    } catch (error) {
      signal?.throwIfAborted()
      failures = (await sizeOf(partFile)) > before ? 1 : failures + 1
      const usualMs = RETRY_DELAY_MS * 2 ** failures
      const delayMs = (delayFor(error, usualMs / 1000) ?? usualMs / 1000) * 1000
      if (failures >= ATTEMPTS_MAX || !isWorthRetrying(error)) throw named(error, options)
      await sleep(delayMs, undefined, signal && { signal })
    }
  }
}

/** Names the file in an error. */
function named(error: unknown, { source, file }: DownloadOptions): ServiceError {
  if (error instanceof ServiceError) return error
  const { code, message } = error as NodeJS.ErrnoException
  const what = isDiskFault(error) ? 'cannot be stored' : 'cannot be fetched'
  const text = `${source.repository}: ${file.path} ${what}: ${code === 'ECONNRESET' ? 'the connection ended early' : message}`
  return failure[isDiskFault(error) ? 'internal' : 'upstream'](text, { cause: error })
}

function isDiskFault(error: unknown): boolean {
  return DISK_FAULTS.includes((error as NodeJS.ErrnoException).code ?? '')
}

async function attempt(options: DownloadOptions, offset: number): Promise<void> {
  const { file, partFile } = options
  const watchdog = watchForSilence(options.signal)
  try {
    const response = await openHubFile(
      options.hub,
      { ...options.source, path: file.path },
      { offset, signal: watchdog.signal },
    )
    if (response.status === 416) {
      await response.body?.cancel()
      await rm(partFile, { force: true })
      throw new Error('the server does not have the requested bytes')
    }
    const start = continuationOf(response, offset)
    if (start === undefined) {
      await response.body?.cancel()
      await rm(partFile, { force: true })
      throw new Error('the server sent a different part than requested')
    }
    let bytes = start
    const body = response.body ?? new ReadableStream<Uint8Array>({ start: (c) => c.close() })
    await pipeline(
      body,
      async function* (chunks: AsyncIterable<Uint8Array>) {
        for await (const chunk of chunks) {
          watchdog.touch()
          bytes += chunk.byteLength
          if (bytes > file.bytes) throw await tooLong(options)
          yield chunk
          options.onBytes?.(bytes)
        }
      },
      createWriteStream(partFile, { flags: start > 0 ? 'a' : 'w' }),
    )
    if (bytes < file.bytes) throw new Error('the connection ended early')
  } catch (error) {
    // An abort error does not carry its reason.
    throw watchdog.signal.aborted ? watchdog.signal.reason : error
  } finally {
    watchdog.stop()
  }
}

/**
 * The offset at which the body of an answer begins: servers may ignore a range request. Undefined
 * if it is not usable.
 */
function continuationOf(response: Response, offset: number): number | undefined {
  if (response.status !== 206) return 0
  const begins = /^bytes (\d+)-/.exec(response.headers.get('content-range') ?? '')?.[1]
  return Number(begins) === offset ? offset : undefined
}

async function tooLong({ source, file, partFile }: DownloadOptions): Promise<ServiceError> {
  await rm(partFile, { force: true })
  return failure.upstream(`${source.repository}: ${file.path} is longer than the hub says`)
}

function isWorthRetrying(error: unknown): boolean {
  if (error instanceof HubUnreachableError) return true
  // Only temporary errors of the hub are retried.
  if (error instanceof ServiceError) return delayFor(error, 0) !== undefined
  return !isDiskFault(error)
}

function watchForSilence(outer: AbortSignal | undefined): {
  readonly signal: AbortSignal
  touch(): void
  stop(): void
} {
  const silence = new AbortController()
  const timer = setTimeout(
    () => silence.abort(new Error('the server fell silent')),
    IDLE_TIMEOUT_MS,
  )
  return {
    signal: outer === undefined ? silence.signal : AbortSignal.any([outer, silence.signal]),
    touch: () => void timer.refresh(),
    stop: () => clearTimeout(timer),
  }
}

async function sizeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  )
}
