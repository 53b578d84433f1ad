/** Optional chunks of a PNG that change how its pixels look. */
const KEPT_CHUNKS = new Set('tRNS gAMA cHRM sRGB iCCP cICP sBIT bKGD pHYs eXIf'.split(' '))
/**
 * Pixels of one side of an image. Decoders and resizers work line by line: nine million lines of
 * one pixel take as long as a hundred square images with as many pixels.
 */
export const IMAGE_SIDE_MAX = 32_768
/** Encoders write some thousand chunks. */
const CHUNKS_MAX = 100_000
/** Encoders write about a dozen scans. */
const SCANS_MAX = 100

const PNG_SIGNATURE = '\x89PNG\r\n\x1a\n'
const JPEG_SIGNATURE = '\xff\xd8\xff'

/**
 * Removes the parts of an image that cost a decoder more than its pixels: texts of a PNG, each of
 * which inflates to megabytes held in memory at once. Throws for a JPEG with very many scans,
 * because a decoder goes through all pixels again for each, and for a PNG with very many chunks.
 */
export function boundImage(bytes: Buffer): Buffer {
  if (startsWith(bytes, PNG_SIGNATURE)) return withoutTexts(bytes)
  if (startsWith(bytes, JPEG_SIGNATURE)) refuseManyScans(bytes)
  return bytes
}

function startsWith(bytes: Buffer, signature: string): boolean {
  return bytes.toString('latin1', 0, signature.length) === signature
}

function withoutTexts(bytes: Buffer): Buffer {
  const kept: Buffer[] = []
  let [from, at] = [0, PNG_SIGNATURE.length]
  // Each chunk is its length, its name, its data and a checksum.
  for (let count = 0; at + 12 <= bytes.length; count += 1) {
    if (count === CHUNKS_MAX) throw new Error(`the PNG has more than ${CHUNKS_MAX} chunks`)
    const name = bytes.toString('latin1', at + 4, at + 8)
    const end = at + 12 + bytes.readUInt32BE(at)
    if (!isCritical(name) && !KEPT_CHUNKS.has(name)) {
      kept.push(bytes.subarray(from, at))
      from = end
    }
    at = end
    if (name === 'IEND') break
  }
  return from === 0 ? bytes : Buffer.concat([...kept, bytes.subarray(from)])
}

/** Names of chunks without which an image cannot be read begin with a capital letter. */
function isCritical(name: string): boolean {
  return name < 'a'
}

function refuseManyScans(bytes: Buffer): void {
  let scans = 0
  for (let at = 2; at + 3 < bytes.length; at += 1) {
    if (bytes[at] !== 0xff) continue
    const marker = bytes[at + 1] ?? 0
    if (marker === END_OF_IMAGE) return
    // Inside a scan these are escaped bytes, restarts and fill bytes, which only look like markers.
    if (marker === 0 || marker === 1 || marker === 0xff || isRestart(marker)) continue
    if (marker === START_OF_SCAN) scans += 1
    if (scans > SCANS_MAX) throw new Error(`the JPEG has more than ${SCANS_MAX} scans`)
    // The length counts its own two bytes.
    at += 1 + bytes.readUInt16BE(at + 2)
  }
}

const START_OF_SCAN = 0xda
const END_OF_IMAGE = 0xd9

function isRestart(marker: number): boolean {
  return marker >= 0xd0 && marker <= 0xd7
}
