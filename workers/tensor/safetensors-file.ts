import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'

import { isRecord, judgeJson } from '#shared/json.ts'

import { countElements } from './element-type.ts'
import { FLOAT_TYPES, isFloatType } from './float-types.ts'

/** The limits of a file. */
interface SafetensorsLimits {
  readonly bytesMax: number
  readonly headerBytesMax: number
}

/** The location of a tensor's elements, in bytes from the end of the header. */
interface TensorEntry {
  /** The type in the format: `BF16`. */
  readonly type: string
  readonly dims: readonly number[]
  readonly from: number
  readonly to: number
}

/** Readers follow the format: names, four values for each tensor, its shape. */
const HEADER_LIMITS = {
  depth: 8,
  members: 2_000_000,
  values: 6_000_000,
  textBytes: 16 << 20,
  requiresFinite: false,
}
const DIMS_MAX = 16

/**
 * An open safetensors file, whose tensors are read one by one. Its header is checked on opening:
 * every tensor of a supported type is complete within the file, and none overlap.
 */
export class SafetensorsFile {
  readonly path: string
  readonly tensors: ReadonlyMap<string, TensorEntry>
  readonly #file: FileHandle
  readonly #start: number

  private constructor(
    path: string,
    {
      file,
      tensors,
      start,
    }: Readonly<{ file: FileHandle; start: number }> & Pick<SafetensorsFile, 'tensors'>,
  ) {
    this.path = path
    this.tensors = tensors
    this.#file = file
    this.#start = start
  }

  /** Throws when the file is not a safetensors file, or exceeds the limits. */
  static async open(path: string, limits: SafetensorsLimits): Promise<SafetensorsFile> {
    // Without this flag opening a pipe waits for its writer.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const stats = await file.stat()
      if (!stats.isFile()) throw new Error(`${path} is not a regular file`)
      if (stats.size > limits.bytesMax) throw tooLarge(path, stats.size, limits.bytesMax)
      const start = await findStart(path, file, { fileBytes: stats.size, ...limits })
      const header = await readAt(path, file, { at: 8, bytes: start - 8 })
      const tensors = readHeader(path, header, stats.size - start)
      refuseOverlaps(path, [...tensors.values()])
      return new SafetensorsFile(path, { file, tensors, start })
    } catch (error) {
      await file.close()
      throw error
    }
  }

  /** Reads all elements of a tensor, or a range of them, widened to 32 bits. */
  async read(
    name: string,
    { first = 0, count }: { readonly first?: number; readonly count?: number } = {},
  ): Promise<Float32Array> {
    const entry = this.tensors.get(name)
    if (entry === undefined || !isFloatType(entry.type)) {
      const type = entry?.type ?? 'no tensor'
      throw new Error(`${this.path}: the tensor ${name} (${type}) cannot be read`)
    }
    const { bytes: size, widen } = FLOAT_TYPES[entry.type]
    const wanted = count ?? countElements(entry.dims) - first
    const bytes = await readAt(this.path, this.#file, {
      at: this.#start + entry.from + first * size,
      bytes: wanted * size,
    })
    return widen(bytes)
  }

  async close(): Promise<void> {
    await this.#file.close()
  }
}

function tooLarge(path: string, bytes: number, bytesMax: number): Error {
  return new Error(`${path}: ${bytes} bytes are more than the ${bytesMax} that are read`)
}

/** The offset of the elements, after the header and its size. */
async function findStart(
  path: string,
  file: FileHandle,
  { fileBytes, headerBytesMax }: { readonly fileBytes: number; readonly headerBytesMax: number },
): Promise<number> {
  if (fileBytes < 8) throw new Error(`${path} is not a safetensors file`)
  const size = await readAt(path, file, { at: 0, bytes: 8 })
  const headerBytes = Number(new DataView(size).getBigUint64(0, true))
  if (headerBytes < 2 || headerBytes > fileBytes - 8) {
    throw new Error(`${path} is not a safetensors file`)
  }
  if (headerBytes > headerBytesMax)
    throw tooLarge(`${path}: its header`, headerBytes, headerBytesMax)
  return 8 + headerBytes
}

/** Bytes in their own memory, so that elements of any type are aligned. */
async function readAt(
  path: string,
  file: FileHandle,
  { at, bytes }: { readonly at: number; readonly bytes: number },
): Promise<ArrayBuffer> {
  const buffer = new ArrayBuffer(bytes)
  const view = new Uint8Array(buffer)
  for (let length = 0; length < bytes; ) {
    const { bytesRead } = await file.read(view, length, bytes - length, at + length)
    if (bytesRead === 0) throw new Error(`${path} was cut off while it was read`)
    length += bytesRead
  }
  return buffer
}

function readHeader(
  path: string,
  buffer: ArrayBuffer,
  dataBytes: number,
): ReadonlyMap<string, TensorEntry> {
  const bytes = Buffer.from(buffer)
  const excess = judgeJson(bytes, HEADER_LIMITS)
  if (excess !== undefined) throw new Error(`${path}: ${excess.message}`)
  let header: unknown
  try {
    header = JSON.parse(bytes.toString('utf8'))
  } catch (cause) {
    throw new Error(`${path} is not a safetensors file`, { cause })
  }
  if (!isRecord(header)) throw new Error(`${path} is not a safetensors file`)
  const entries = Object.entries(header).filter(([name]) => name !== '__metadata__')
  return new Map(
    entries.map(([name, value]) => {
      const entry = readEntry(isRecord(value) ? value : {})
      const type = entry?.type ?? 'no tensor'
      if (entry === undefined || !isWhole(entry)) {
        throw new Error(`${path}: the tensor ${name} (${type}) cannot be read`)
      }
      if (entry.to > dataBytes) {
        throw new Error(`${path}: the tensor ${name} (${type}) extends beyond the end of the file`)
      }
      return [name, entry]
    }),
  )
}

function readEntry({
  dtype: type,
  shape: dims,
  data_offsets: offsets,
}: Record<string, unknown>): TensorEntry | undefined {
  const isCount = (value: unknown): value is number =>
    Number.isSafeInteger(value) && Number(value) >= 0
  const [from, to] = Array.isArray(offsets) ? (offsets as unknown[]) : []
  if (typeof type !== 'string' || !isCount(from) || !isCount(to) || to < from) return undefined
  if (!Array.isArray(dims) || dims.length > DIMS_MAX || !dims.every(isCount)) return undefined
  return { type, dims, from, to }
}

/** Whether a tensor has as many bytes as its shape requires; unsupported types are not checked. */
function isWhole({ type, dims, from, to }: TensorEntry): boolean {
  return !isFloatType(type) || to - from === countElements(dims) * FLOAT_TYPES[type].bytes
}

/** Overlapping tensors would take many times the memory of the file. */
function refuseOverlaps(path: string, entries: readonly TensorEntry[]): void {
  let end = 0
  for (const { from, to } of entries.toSorted((a, b) => a.from - b.from || a.to - b.to)) {
    if (from < end) throw new Error(`${path}: its tensors overlap`)
    end = to
  }
}
