import { Writable } from 'node:stream'

import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  PutObjectCommand,
  type S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3'

// The smallest part size of S3, because parts in flight are held in memory.
const PART_BYTES = 5 * 1024 * 1024
/** Two parts are sent while the next one is filled. */
const PARTS_PER_UPLOAD = 3
const IDLE_BUFFERS_MAX = PARTS_PER_UPLOAD
// The time limit of an abort. Parts that remain are swept later.
const DISCARD_TIMEOUT_MS = 5000

/** The key of an object and its metadata. */
export interface S3Target {
  readonly Bucket: string
  readonly Key: string
  readonly ContentType?: string
}

/**
 * Part buffers that uploads reuse: a new buffer for every part would make the garbage collector
 * mark the heap many times a second. A buffer whose transfer failed is not reused, because a dying
 * connection may still read it.
 */
export class PartBuffers {
  readonly #idle: Buffer[] = []

  take(): Buffer {
    return this.#idle.pop() ?? Buffer.allocUnsafeSlow(PART_BYTES)
  }

  giveBack(buffer: Buffer): void {
    if (this.#idle.length < IDLE_BUFFERS_MAX) this.#idle.push(buffer)
  }
}

interface SentPart {
  readonly PartNumber: number
  readonly ETag: string | undefined
}

/**
 * The sink of a stream of unknown length. Stores it in one request when it fits into one part,
 * otherwise as a multipart upload. The object becomes visible when the upload finishes; a destroyed
 * upload leaves nothing behind.
 */
export class S3Upload extends Writable {
  bytes = 0
  readonly #client: S3Client
  readonly #target: S3Target
  readonly #buffers: PartBuffers
  readonly #abort = new AbortController()
  readonly #sending = new Set<Promise<void>>()
  readonly #sent: SentPart[] = []
  #filling: { readonly buffer: Buffer; length: number } | undefined
  #uploadId: string | undefined

  constructor(client: S3Client, target: S3Target, buffers: PartBuffers) {
    super()
    this.#client = client
    this.#target = target
    this.#buffers = buffers
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error) => void): void {
    this.bytes += chunk.length
    const rest = this.#fill(chunk)
    if (rest.length === 0) done()
    else this.#fillOn(rest).then(() => done(), done)
  }

  override _final(done: (error?: Error) => void): void {
    this.#finish().then(() => done(), done)
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#abort.abort()
    this.#discard().then(
      () => done(error),
      (cause: Error) => done(error ?? cause),
    )
  }

  /** Copies what fits into the current part; returns the rest. */
  #fill(chunk: Buffer): Buffer {
    this.#filling ??= { buffer: this.#buffers.take(), length: 0 }
    const copied = chunk.copy(this.#filling.buffer, this.#filling.length)
    this.#filling.length += copied
    return chunk.subarray(copied)
  }

  async #fillOn(chunk: Buffer): Promise<void> {
    for (let rest = chunk; rest.length > 0; rest = this.#fill(rest)) await this.#sendFilled()
  }

  /** Sends the filled part; resolves when there is room for the next. */
  async #sendFilled(): Promise<void> {
    const part = this.#filling
    if (part === undefined) return
    this.#uploadId ??= await this.#begin()
    this.#filling = undefined
    const number = this.#sent.length + 1
    this.#sent.push({ PartNumber: number, ETag: undefined })
    const sending = this.#sendPart(number, part.buffer.subarray(0, part.length))
      .then(() => this.#buffers.giveBack(part.buffer))
      .catch((error: Error) => void this.destroy(error))
      .finally(() => this.#sending.delete(sending))
    this.#sending.add(sending)
    if (this.#sending.size === PARTS_PER_UPLOAD) await Promise.race(this.#sending)
  }

  async #begin(): Promise<string> {
    const { UploadId } = await this.#client.send(
      new CreateMultipartUploadCommand(this.#target),
      this.#options,
    )
    if (UploadId === undefined) throw new Error('the object storage began no upload')
    return UploadId
  }

  async #sendPart(PartNumber: number, Body: Buffer): Promise<void> {
    const { Bucket, Key } = this.#target
    const { ETag } = await this.#client.send(
      new UploadPartCommand({ Bucket, Key, UploadId: this.#uploadId, PartNumber, Body }),
      this.#options,
    )
    this.#sent[PartNumber - 1] = { PartNumber, ETag }
  }

  async #finish(): Promise<void> {
    if (this.#uploadId === undefined) return this.#storeWhole()
    await this.#sendFilled()
    await Promise.all(this.#sending)
    // A failed part has destroyed this stream.
    if (this.destroyed) return
    const { Bucket, Key } = this.#target
    const parts = { Parts: this.#sent }
    await this.#client.send(
      new CompleteMultipartUploadCommand({
        Bucket,
        Key,
        UploadId: this.#uploadId,
        MultipartUpload: parts,
      }),
      this.#options,
    )
    this.#uploadId = undefined
  }

  async #storeWhole(): Promise<void> {
    const part = this.#filling
    this.#filling = undefined
    const Body = part?.buffer.subarray(0, part.length) ?? Buffer.alloc(0)
    await this.#client.send(new PutObjectCommand({ ...this.#target, Body }), this.#options)
    if (part !== undefined) this.#buffers.giveBack(part.buffer)
  }

  get #options() {
    return { abortSignal: this.#abort.signal }
  }

  /** Removes the parts of an upload that did not finish. */
  async #discard(): Promise<void> {
    await Promise.all(this.#sending)
    if (this.#filling !== undefined) this.#buffers.giveBack(this.#filling.buffer)
    this.#filling = undefined
    if (this.#uploadId === undefined) return
    const { Bucket, Key } = this.#target
    const UploadId = this.#uploadId
    const abortSignal = AbortSignal.timeout(DISCARD_TIMEOUT_MS)
    await this.#client.send(new AbortMultipartUploadCommand({ Bucket, Key, UploadId }), {
      abortSignal,
    })
  }
}
