import { readFileWithin } from '#shared/read-file.ts'

const HEADER_BYTES_MAX = 1 << 20 // a head has a handful of tensors
const FILE_BYTES_MAX = 1 << 30

/** Tensors of a safetensors file as float32, by name. Throws a sentence when it is none. */
export async function readSafetensors(path: string): Promise<ReadonlyMap<string, Float32Array>> {
  const file = await readFileWithin(path, FILE_BYTES_MAX)
  const size = file.length
  const headerBytes = file.length < 8 ? -1 : Number(file.readBigUInt64LE(0))
  if (headerBytes < 2 || headerBytes > Math.min(HEADER_BYTES_MAX, file.length - 8)) {
    throw new Error(`${path} is no safetensors file`)
  }
  const start = 8 + headerBytes
  const header = JSON.parse(file.toString('utf8', 8, start)) as Record<string, unknown>
  const tensors = new Map<string, Float32Array>()
  let tensorBytes = 0
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const { dtype, data_offsets: offsets } = (entry ?? {}) as Record<string, unknown>
    const [from, to] = Array.isArray(offsets) ? (offsets as unknown[]) : []
    const widen = Object.hasOwn(WIDEN, String(dtype)) ? WIDEN[String(dtype)] : undefined
    const isInside =
      Number.isSafeInteger(from) && Number.isSafeInteger(to) && start + (to as number) <= size
    if (widen === undefined || !isInside || (from as number) > (to as number)) {
      throw new Error(`${path}: the tensor ${name} (${String(dtype)}) cannot be read`)
    }
    // Tensors that overlap would take memory many times over.
    tensorBytes += (to as number) - (from as number)
    if (tensorBytes > size) throw new Error(`${path}: its tensors overlap`)
    // A copy, so that the elements are aligned.
    tensors.set(name, widen(file.buffer.slice(...within(file, start, [from, to] as never))))
  }
  return tensors
}

function within(file: Buffer, start: number, [from, to]: readonly [number, number]) {
  const base = file.byteOffset + start
  return [base + from, base + to] as const
}

const WIDEN: Readonly<Record<string, (bytes: ArrayBufferLike) => Float32Array>> = {
  F32: (bytes) => new Float32Array(bytes),
  F16: (bytes) => Float32Array.from(new Float16Array(bytes)),
  // The upper half of a float32.
  BF16: (bytes) =>
    new Float32Array(Uint32Array.from(new Uint16Array(bytes), (half) => half << 16).buffer),
}
