/** A packet of one logical stream of an Ogg file (RFC 3533). */
interface OggPacket {
  readonly serial: number
  readonly bytes: Uint8Array
  /** The first packet of its stream, which names the codec. */
  readonly isFirst: boolean
  /** The position at the end of the last packet of a page; undefined inside pages. */
  readonly granule: number | undefined
}

const HEADER_BYTES = 27
// A continued packet is copied once for each of its pages. Without a limit, such a file would take
// time and memory that grow with the square of its length.
const PACKET_BYTES_MAX = 1024 ** 2
const NO_GRANULE = 2n ** 64n - 1n

/** The packets of all streams of a file, in order. Damaged parts are skipped. */
export function* readOggPackets(bytes: Uint8Array): Generator<OggPacket> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const unfinished = new Map<number, Uint8Array>()
  for (let at = nextPage(bytes, 0); at >= 0; ) {
    const numSegments = bytes[at + 26] ?? 0
    const bodyStart = at + HEADER_BYTES + numSegments
    if (bodyStart > bytes.length) return
    const flags = bytes[at + 5] ?? 0
    const serial = view.getUint32(at + 14, true)
    const granule = view.getBigUint64(at + 6, true)
    const { packets, rest, end } = splitBody(bytes, at + HEADER_BYTES, bodyStart)
    const isContinued = (flags & 1) !== 0
    const held = unfinished.get(serial)
    unfinished.delete(serial)
    const whole = packets.length > 0
    const [joined, ...others] = join(isContinued, held, whole ? packets : [rest])
    const list = [joined, ...others].filter((packet) => packet !== undefined)
    if (!whole && joined !== undefined && rest.length > 0) unfinished.set(serial, joined)
    else if (whole && rest.length > 0) unfinished.set(serial, rest)
    if (whole) {
      for (const [index, packet] of list.entries()) {
        const isLast = index === list.length - 1 && granule !== NO_GRANULE
        yield {
          serial,
          bytes: packet,
          isFirst: index === 0 && (flags & 2) !== 0,
          granule: isLast ? Number(granule) : undefined,
        }
      }
    }
    at = nextPage(bytes, end)
  }
}

/**
 * The first packet, joined with its beginning on earlier pages; undefined if its beginning is lost.
 */
function join(
  isContinued: boolean,
  held: Uint8Array | undefined,
  [first, ...others]: readonly Uint8Array[],
): readonly (Uint8Array | undefined)[] {
  if (!isContinued || first === undefined) return [first, ...others]
  if (held === undefined || held.length + first.length > PACKET_BYTES_MAX) {
    return [undefined, ...others]
  }
  const joined = new Uint8Array(held.length + first.length)
  joined.set(held)
  joined.set(first, held.length)
  return [joined, ...others]
}

function splitBody(bytes: Uint8Array, tableStart: number, bodyStart: number) {
  const packets: Uint8Array[] = []
  let start = bodyStart
  let end = bodyStart
  for (let at = tableStart; at < bodyStart; at += 1) {
    const length = bytes[at] ?? 0
    end += length
    // 255 means that the packet continues in the next segment.
    if (length === 255) continue
    packets.push(bytes.subarray(start, Math.min(end, bytes.length)))
    start = end
  }
  return { packets, rest: bytes.subarray(start, Math.min(end, bytes.length)), end }
}

function nextPage(bytes: Uint8Array, from: number): number {
  let at = bytes.indexOf(0x4f, from)
  while (at >= 0 && at + HEADER_BYTES <= bytes.length) {
    if (bytes[at + 1] === 0x67 && bytes[at + 2] === 0x67 && bytes[at + 3] === 0x53) return at
    at = bytes.indexOf(0x4f, at + 1)
  }
  return -1
}
