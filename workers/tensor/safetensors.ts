import { isRecord } from '#shared/json.ts'
import { readFileWithin } from '#shared/read-file.ts'

import { countElements } from './element-type.ts'

const HEADER_BYTES_MAX = 4 << 20 // an adapter of the largest models has some thousand tensors
const FILE_BYTES_MAX = 1 << 30

/** A tensor of a safetensors file, widened to 32 bits. */
export interface StoredTensor {
  readonly dims: readonly number[]
  readonly values: Float32Array
}

/** Element types that files are written in. */
export type StoredType = 'F32' | 'F16' | 'BF16'

/** Tensors of a safetensors file by name. Throws a sentence when it is none. */
export async function readSafetensors(
  path: string,
  { bytesMax = FILE_BYTES_MAX }: { readonly bytesMax?: number } = {},
): Promise<ReadonlyMap<string, StoredTensor>> {
  const file = await readFileWithin(path, bytesMax)
  const headerBytes = file.length < 8 ? -1 : Number(file.readBigUInt64LE(0))
  if (headerBytes < 2 || headerBytes > Math.min(HEADER_BYTES_MAX, file.length - 8)) {
    throw new Error(`${path} is no safetensors file`)
  }
  const start = 8 + headerBytes
  const entries = readHeader(path, file.toString('utf8', 8, start), file.length - start)
  refuseOverlaps(path, entries)
  const base = file.byteOffset + start
  return new Map(
    entries.map(({ name, type, dims, from, to }) => {
      // A copy, so that the elements are aligned.
      const values = TYPES[type].widen(file.buffer.slice(base + from, base + to))
      return [name, { dims, values }] as const
    }),
  )
}

/** A safetensors file of the tensors, in the order of their names. */
export function writeSafetensors(
  tensors: ReadonlyMap<string, StoredTensor>,
  {
    type = 'F32',
    metadata = { format: 'pt' },
  }: { readonly type?: StoredType; readonly metadata?: Readonly<Record<string, string>> } = {},
): Buffer {
  const header: [string, unknown][] = [['__metadata__', metadata]]
  const parts: Uint8Array[] = []
  let end = 0
  for (const [name, { dims, values }] of [...tensors].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const bytes = TYPES[type].narrow(values)
    header.push([name, { dtype: type, shape: dims, data_offsets: [end, end + bytes.length] }])
    parts.push(bytes)
    end += bytes.length
  }
  const json = JSON.stringify(Object.fromEntries(header))
  // Readers map the file: the elements begin at a multiple of eight bytes.
  const padded = Buffer.from(json.padEnd(json.length + ((8 - (Buffer.byteLength(json) % 8)) % 8)))
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(padded.length))
  return Buffer.concat([size, padded, ...parts])
}

interface Entry {
  readonly name: string
  readonly type: StoredType
  readonly dims: readonly number[]
  readonly from: number
  readonly to: number
}

function readHeader(path: string, text: string, dataBytes: number): Entry[] {
  let header: unknown
  try {
    header = JSON.parse(text)
  } catch (cause) {
    throw new Error(`${path} is no safetensors file`, { cause })
  }
  if (!isRecord(header)) throw new Error(`${path} is no safetensors file`)
  return Object.entries(header)
    .filter(([name]) => name !== '__metadata__')
    .map(([name, value]) => {
      const entry = readEntry(name, isRecord(value) ? value : {}, dataBytes)
      if (entry !== undefined) return entry
      const type = isRecord(value) ? String(value.dtype) : 'no tensor'
      throw new Error(`${path}: the tensor ${name} (${type}) cannot be read`)
    })
}

function readEntry(
  name: string,
  { dtype, shape, data_offsets: offsets }: Record<string, unknown>,
  dataBytes: number,
): Entry | undefined {
  const isCount = (value: unknown): value is number =>
    Number.isSafeInteger(value) && Number(value) >= 0
  const [from, to] = Array.isArray(offsets) ? (offsets as unknown[]) : []
  if (typeof dtype !== 'string' || !Object.hasOwn(TYPES, dtype)) return undefined
  if (!Array.isArray(shape) || !shape.every(isCount) || !isCount(from) || !isCount(to)) {
    return undefined
  }
  const type = dtype as StoredType
  const isWhole = to - from === countElements(shape) * TYPES[type].bytes
  return isWhole && to <= dataBytes ? { name, type, dims: shape, from, to } : undefined
}

/** Tensors that overlap would take memory many times over. */
function refuseOverlaps(path: string, entries: readonly Entry[]): void {
  let end = 0
  for (const { from, to } of entries.toSorted((a, b) => a.from - b.from || a.to - b.to)) {
    if (from < end) throw new Error(`${path}: its tensors overlap`)
    end = to
  }
}

interface TypeRow {
  readonly bytes: number
  readonly widen: (bytes: ArrayBufferLike) => Float32Array
  readonly narrow: (values: Float32Array) => Uint8Array
}

const TYPES: Readonly<Record<StoredType, TypeRow>> = {
  F32: {
    bytes: 4,
    widen: (bytes) => new Float32Array(bytes),
    narrow: (values) => bytesOf(values),
  },
  F16: {
    bytes: 2,
    widen: (bytes) => Float32Array.from(new Float16Array(bytes)),
    narrow: (values) => bytesOf(Float16Array.from(values)),
  },
  // The upper half of a float32.
  BF16: {
    bytes: 2,
    widen: (bytes) =>
      new Float32Array(Uint32Array.from(new Uint16Array(bytes), (half) => half << 16).buffer),
    narrow: (values) => {
      const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
      return bytesOf(Uint16Array.from(bits, roundToUpperHalf))
    },
  },
}

/** Rounds to the nearest upper half, and to the even one in the middle. NaN stays NaN. */
function roundToUpperHalf(bits: number): number {
  if ((bits & 0x7fff_ffff) > 0x7f80_0000) return (bits >>> 16) | 0x40
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16
}

function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}
