import { promisify } from 'node:util'
import { crc32, inflateRaw } from 'node:zlib'

const inflate = promisify(inflateRaw)

/** The limits of an archive. */
interface NpzLimits {
  readonly entriesMax: number
  /** Bytes of all entries together, after decompression. */
  readonly bytesMax: number
}

interface Entry {
  readonly name: string
  readonly isDeflated: boolean
  readonly checksum: number
  readonly storedBytes: number
  readonly bytes: number
  /** The offset of its local header. */
  readonly offset: number
}

const END = { signature: 0x06054b50, bytes: 22 }
const DIRECTORY_HEADER = { signature: 0x02014b50, bytes: 46 }
const LOCAL_HEADER = { signature: 0x04034b50, bytes: 30 }
const STORED = 0
const DEFLATED = 8
const ENCRYPTED_FLAG = 1
const NAME = /^([\w-]{1,100})\.npy$/

/** Whether a file begins as a ZIP archive. */
export function isZip(bytes: Buffer): boolean {
  return bytes.length >= LOCAL_HEADER.bytes && bytes.readUInt32LE(0) === LOCAL_HEADER.signature
}

/**
 * The files `*.npy` of an archive written by `numpy.savez` or `savez_compressed`, by the names of
 * their arrays. Throws for anything else: other names, more entries or bytes than the limits, or
 * content that differs from the directory.
 */
export async function readNpz(
  archive: Buffer,
  limits: NpzLimits,
): Promise<ReadonlyMap<string, Buffer>> {
  const files = new Map<string, Buffer>()
  for (const entry of readDirectory(archive, limits)) {
    if (files.has(entry.name)) throw new Error(`${entry.name}.npy is there twice`)
    files.set(entry.name, await contentOf(archive, entry))
  }
  return files
}

/** The entries of the directory at the end of an archive, without reading their content. */
function readDirectory(archive: Buffer, { entriesMax, bytesMax }: NpzLimits): readonly Entry[] {
  const end = headerAt(archive, archive.length - END.bytes, END)
  const count = end.readUInt16LE(10)
  if (count > entriesMax) throw new Error(`${count} entries are more than ${entriesMax}`)
  const entries: Entry[] = []
  let total = 0
  let at = end.readUInt32LE(16)
  for (let index = 0; index < count; index += 1) {
    const header = headerAt(archive, at, DIRECTORY_HEADER)
    const nameBytes = header.readUInt16LE(28)
    at += DIRECTORY_HEADER.bytes
    const entry = readEntry(header, partAt(archive, at, nameBytes).toString('latin1'))
    // Entries may overlap, so only the sum bounds the decompressed size.
    total += entry.bytes
    if (total > bytesMax) throw new Error(`its arrays are more than ${bytesMax} bytes`)
    entries.push(entry)
    at += nameBytes + header.readUInt16LE(30) + header.readUInt16LE(32)
  }
  return entries
}

function readEntry(header: Buffer, path: string): Entry {
  const name = NAME.exec(path)?.[1]
  if (name === undefined) throw new Error(`${JSON.stringify(path)} is not the name of an array`)
  const method = header.readUInt16LE(10)
  if (method !== STORED && method !== DEFLATED) {
    throw new Error(`${path} has compression ${method}, expected stored or deflated`)
  }
  if ((header.readUInt16LE(8) & ENCRYPTED_FLAG) !== 0) throw new Error(`${path} is encrypted`)
  return {
    name,
    isDeflated: method === DEFLATED,
    checksum: header.readUInt32LE(16),
    storedBytes: header.readUInt32LE(20),
    bytes: header.readUInt32LE(24),
    offset: header.readUInt32LE(42),
  }
}

async function contentOf(archive: Buffer, entry: Entry): Promise<Buffer> {
  const header = headerAt(archive, entry.offset, LOCAL_HEADER)
  // Sizes in the local header are placeholders if NumPy reserves room for those of ZIP64.
  const start =
    entry.offset + LOCAL_HEADER.bytes + header.readUInt16LE(26) + header.readUInt16LE(28)
  const stored = partAt(archive, start, entry.storedBytes)
  const content = entry.isDeflated ? await inflateWithin(stored, entry) : stored
  if (content.length !== entry.bytes || crc32(content) !== entry.checksum) {
    throw new Error(`${entry.name}.npy differs from its size or checksum`)
  }
  return content
}

async function inflateWithin(stored: Buffer, { name, bytes }: Entry): Promise<Buffer> {
  try {
    return await inflate(stored, { maxOutputLength: Math.max(bytes, 1) })
  } catch (error) {
    throw new Error(`${name}.npy cannot be inflated: ${(error as Error).message}`)
  }
}

function headerAt(archive: Buffer, at: number, kind: typeof END): Buffer {
  const header = partAt(archive, at, kind.bytes)
  if (header.readUInt32LE(0) === kind.signature) return header
  throw new Error('it is not a ZIP archive as NumPy writes it')
}

function partAt(archive: Buffer, at: number, bytes: number): Buffer {
  if (at >= 0 && at + bytes <= archive.length) return archive.subarray(at, at + bytes)
  throw new Error('it is not a whole ZIP archive')
}
