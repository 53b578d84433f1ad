import { FLOAT_TYPES, type StoredType } from './float-types.ts'
import { SafetensorsFile } from './safetensors-file.ts'

const HEADER_BYTES_MAX = 4 << 20 // an adapter of the largest models has some thousand tensors
const FILE_BYTES_MAX = 1 << 30

/** A tensor of a safetensors file, widened to 32 bits. */
export interface StoredTensor {
  readonly dims: readonly number[]
  readonly values: Float32Array
}

/** Tensors of a safetensors file by name. Throws when it is malformed. */
export async function readSafetensors(
  path: string,
  { bytesMax = FILE_BYTES_MAX }: { readonly bytesMax?: number } = {},
): Promise<ReadonlyMap<string, StoredTensor>> {
  const file = await SafetensorsFile.open(path, { bytesMax, headerBytesMax: HEADER_BYTES_MAX })
  try {
    const tensors = [...file.tensors].map(async ([name, { dims }]) => {
      return [name, { dims, values: await file.read(name) }] as const
    })
    return new Map(await Promise.all(tensors))
  } finally {
    await file.close()
  }
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
    const bytes = FLOAT_TYPES[type].narrow(values)
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
