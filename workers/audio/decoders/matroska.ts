/** An audio track of a Matroska or WebM file. */
export interface MatroskaTrack {
  readonly number: number
  readonly codec: string
  readonly setup: Uint8Array
}

// Element identifiers of RFC 9559. The contents of these are read; all others are skipped.
const SEGMENT = 0x18_53_80_67
const CLUSTER = 0x1f_43_b6_75
const TRACKS = 0x16_54_ae_6b
const TRACK_ENTRY = 0xae
const BLOCK_GROUP = 0xa0
const CONTAINERS: readonly number[] = [SEGMENT, CLUSTER, TRACKS, TRACK_ENTRY, BLOCK_GROUP]
const TRACK_NUMBER = 0xd7
const TRACK_TYPE = 0x83
const CODEC_ID = 0x86
const CODEC_PRIVATE = 0x63_a2
const SIMPLE_BLOCK = 0xa3
const BLOCK = 0xa1
const AUDIO = 2
const TRACKS_MAX = 64

/** The audio packets of the first audio track. `onTrack` is called before its first packet. */
export function* readMatroskaPackets(
  bytes: Uint8Array,
  onTrack: (track: MatroskaTrack) => void,
): Generator<Uint8Array> {
  const tracks: { number: number; type: number; codec: string; setup: Uint8Array }[] = []
  let chosen: MatroskaTrack | undefined
  for (const { id, body } of readElements(bytes)) {
    const track = tracks.at(-1)
    if (id === TRACK_ENTRY) {
      if (tracks.length === TRACKS_MAX) throw new Error('too many tracks')
      tracks.push({ number: 0, type: 0, codec: '', setup: new Uint8Array(0) })
    } else if (id === TRACK_NUMBER && track) track.number = readUnsigned(body)
    else if (id === TRACK_TYPE && track) track.type = readUnsigned(body)
    else if (id === CODEC_ID && track) track.codec = Buffer.from(body.subarray(0, 64)).toString()
    else if (id === CODEC_PRIVATE && track) track.setup = body
    else if (id === SIMPLE_BLOCK || id === BLOCK) {
      if (chosen === undefined) {
        chosen = tracks.find(({ type }) => type === AUDIO)
        if (chosen === undefined) throw new Error('no audio track')
        onTrack(chosen)
      }
      yield* readBlock(body, chosen.number)
    }
  }
}

function* readElements(bytes: Uint8Array): Generator<{ id: number; body: Uint8Array }> {
  for (let at = 0; at < bytes.length; ) {
    const idLength = lengthOfNumber(bytes[at] ?? 0)
    if (idLength > 4) throw new Error('no element')
    const id = readUnsigned(bytes.subarray(at, at + idLength))
    const size = readNumber(bytes, at + idLength)
    const start = at + idLength + size.length
    if (CONTAINERS.includes(id)) {
      yield { id, body: bytes.subarray(start, start) }
      at = start
      continue
    }
    if (size.value === undefined) throw new Error('element without an end')
    yield { id, body: bytes.subarray(start, start + size.value) }
    at = start + size.value
  }
}

/** The frames of a block: one, or several in one of three lacings (RFC 9559, section 10.3). */
function readBlock(body: Uint8Array, wanted: number): Uint8Array[] {
  const track = readNumber(body, 0)
  if (track.value !== wanted) return []
  const lacing = ((body[track.length + 2] ?? 0) >> 1) & 3
  let at = track.length + 3
  if (lacing === 0) return [body.subarray(at)]
  const count = (body[at] ?? 0) + 1
  at += 1
  const sizes: number[] = []
  if (lacing === 2) {
    sizes.push(...Array.from({ length: count - 1 }, () => Math.floor((body.length - at) / count)))
  }
  while (sizes.length < count - 1) {
    if (at >= body.length) throw new Error('cut off block')
    const next = lacing === 1 ? readXiphSize(body, at) : readEbmlSize(body, at, sizes.at(-1))
    sizes.push(next.value)
    at += next.length
  }
  const frames = sizes.map((size) => {
    at += size
    return body.subarray(at - size, at)
  })
  return [...frames, body.subarray(at)]
}

function readXiphSize(body: Uint8Array, start: number): { value: number; length: number } {
  let at = start
  let value = 0
  while (body[at] === 255) {
    value += 255
    at += 1
  }
  return { value: value + (body[at] ?? 0), length: at + 1 - start }
}

/** The first size as stored; each later one as the difference from the one before. */
function readEbmlSize(body: Uint8Array, at: number, previous: number | undefined) {
  const { value = 0, length } = readNumber(body, at)
  if (previous === undefined) return { value, length }
  const size = previous + value - (2 ** (7 * length - 1) - 1)
  if (size < 0) throw new Error('negative frame size')
  return { value: size, length }
}

/** A number of variable length; undefined where all its bits are ones, which means “unknown”. */
function readNumber(bytes: Uint8Array, at: number): { value: number | undefined; length: number } {
  const first = bytes[at] ?? 0
  const length = lengthOfNumber(first)
  if (length > 8) throw new Error('no number')
  let value = first & (2 ** (8 - length) - 1)
  for (let i = 1; i < length; i += 1) value = value * 256 + (bytes[at + i] ?? 0)
  return { value: value >= 2 ** (7 * length) - 1 ? undefined : value, length }
}

function lengthOfNumber(first: number): number {
  return Math.clz32(first) - 23
}

function readUnsigned(bytes: Uint8Array): number {
  return bytes.subarray(0, 8).reduce((value, byte) => value * 256 + byte, 0)
}
