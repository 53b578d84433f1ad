import { crc32, deflateRawSync } from 'node:zlib'

/** An entry of an archive; what differs from its content makes a hostile one. */
export interface ZipEntry {
  readonly path: string
  readonly content: Buffer
  readonly isDeflated?: boolean
  readonly method?: number
  readonly flags?: number
  readonly statedBytes?: number
  readonly checksum?: number
}

/** A ZIP archive of some entries. */
export function writeZip(entries: readonly ZipEntry[]): Buffer {
  const parts: Buffer[] = []
  const directory: Buffer[] = []
  let offset = 0
  for (const entry of entries) {
    const { path, content, isDeflated = false, flags = 0 } = entry
    const stored = isDeflated ? deflateRawSync(content) : content
    const shared = Buffer.alloc(26)
    shared.writeUInt16LE(20, 0)
    shared.writeUInt16LE(flags, 2)
    shared.writeUInt16LE(entry.method ?? (isDeflated ? 8 : 0), 4)
    shared.writeUInt32LE(entry.checksum ?? crc32(content), 10)
    shared.writeUInt32LE(stored.length, 14)
    shared.writeUInt32LE(entry.statedBytes ?? content.length, 18)
    shared.writeUInt16LE(path.length, 22)
    const local = Buffer.concat([Buffer.from('PK\x03\x04'), shared, Buffer.from(path), stored])
    const place = Buffer.alloc(14)
    place.writeUInt32LE(offset, 10)
    directory.push(Buffer.from('PK\x01\x02\x14\0'), shared, place, Buffer.from(path))
    parts.push(local)
    offset += local.length
  }
  const end = Buffer.alloc(18)
  end.writeUInt16LE(entries.length, 4)
  end.writeUInt16LE(entries.length, 6)
  end.writeUInt32LE(Buffer.concat(directory).length, 8)
  end.writeUInt32LE(offset, 12)
  return Buffer.concat([...parts, ...directory, Buffer.from('PK\x05\x06'), end])
}

/** An array file of NumPy with a header as it is given. */
export function writeNpy(
  elements: Uint8Array,
  { descr = "'<f4'", shape, order = 'False' }: { descr?: string; shape: string; order?: string },
): Buffer {
  const text = `{'descr': ${descr}, 'fortran_order': ${order}, 'shape': ${shape}, }\n`
  const length = Buffer.alloc(2)
  length.writeUInt16LE(text.length)
  return Buffer.concat([
    Buffer.from('\x93NUMPY\x01\x00', 'latin1'),
    length,
    Buffer.from(text),
    elements,
  ])
}
