import { type FileHandle, open } from 'node:fs/promises'
import { basename } from 'node:path'

import type { Constant } from './model.ts'

/** Each tensor begins at a multiple of this, because readers map the file by pages. */
const PAGE_BYTES = 4096

/** The bytes that a tensor takes in a file of weights, with the room before the next. */
export function storedBytes(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES
}

/** A file of weights beside a graph, which grows tensor by tensor. */
export class DataFile {
  readonly #location: string
  readonly #handle: FileHandle
  #end = 0

  private constructor(location: string, handle: FileHandle) {
    this.#location = location
    this.#handle = handle
  }

  static async create(path: string): Promise<DataFile> {
    return new DataFile(basename(path), await open(path, 'w'))
  }

  /** Writes the elements of a constant, piece by piece. */
  async append(
    shape: Omit<Constant, 'data'>,
    pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  ): Promise<Constant> {
    const offset = storedBytes(this.#end)
    this.#end = offset
    for await (const bytes of pieces) await this.#write(bytes)
    const length = this.#end - offset
    return { ...shape, data: { kind: 'file', location: this.#location, offset, length } }
  }

  /** Flushes the file to the disk, and closes it. */
  async finish(): Promise<void> {
    await this.#handle.sync()
    await this.close()
  }

  async close(): Promise<void> {
    await this.#handle.close()
  }

  async #write(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; ) {
      const { bytesWritten } = await this.#handle.write(bytes, at, bytes.length - at, this.#end)
      at += bytesWritten
      this.#end += bytesWritten
    }
  }
}
