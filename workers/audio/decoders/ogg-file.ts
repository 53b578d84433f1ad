import { createFlacDecoder, readStreamInfo } from './flac.ts'
import { readOggPackets } from './ogg.ts'
import { createOpusDecoder } from './opus.ts'
import { type PacketDecoder, type Pcm, sliceOf, UnsupportedAudioError } from './pcm.ts'
import { createVorbisDecoder } from './vorbis.ts'

// Concatenated streams (RFC 3533, section 4). Each creates a decoder, which takes far longer than
// the size of its headers suggests.
const CHAINED_STREAMS_MAX = 32
const VORBIS_HEADERS = 3

interface OggStream {
  readonly serial: number
  readonly headers: Uint8Array[]
  /** The decoder once all headers are read. */
  decoder: PacketDecoder | undefined
  readonly open: (headers: readonly Uint8Array[]) => Promise<PacketDecoder | undefined>
  /** Samples at the start that a granule position counts but that are not delivered. */
  readonly preSkip: number
  produced: number
}

/** Decodes the first stream with a known codec in each link of an Ogg file. */
export async function* decodeOgg(bytes: Uint8Array): AsyncGenerator<Pcm> {
  let stream: OggStream | undefined
  let links = 0
  let hasUnknown = false
  for (const packet of readOggPackets(bytes)) {
    if (packet.isFirst && (stream === undefined || stream.produced > 0)) {
      const opened = openStream(packet.serial, packet.bytes)
      hasUnknown ||= opened === undefined
      if (opened === undefined) continue
      links += 1
      if (links > CHAINED_STREAMS_MAX) throw new Error('too many chained streams')
      stream = opened
      stream.decoder = await stream.open(stream.headers)
      continue
    }
    if (stream === undefined || packet.serial !== stream.serial) continue
    if (stream.decoder === undefined) {
      stream.headers.push(packet.bytes)
      stream.decoder = await stream.open(stream.headers)
      continue
    }
    const pcm = trim(stream, decodeOrSkip(stream.decoder, packet.bytes), packet.granule)
    if (pcm !== undefined) yield pcm
  }
  if (links === 0 && hasUnknown) throw new UnsupportedAudioError('Ogg codec')
}

function openStream(serial: number, first: Uint8Array): OggStream | undefined {
  const name = Buffer.from(first.subarray(0, 8)).toString('latin1')
  const common = { serial, headers: [first], decoder: undefined, preSkip: 0, produced: 0 }
  if (name === 'OpusHead') {
    const preSkip = (first[10] ?? 0) + 256 * (first[11] ?? 0)
    // The comments follow the identification.
    const open = async ([head, comments]: readonly Uint8Array[]) =>
      head && comments ? createOpusDecoder(head) : undefined
    return { ...common, preSkip, open }
  }
  if (name.startsWith('\u0001vorbis')) {
    const open = async ([head, , setup, ...rest]: readonly Uint8Array[]) =>
      head && setup && rest.length === 0 ? createVorbisDecoder(head, setup) : undefined
    return {
      ...common,
      open: async (headers) => (headers.length === VORBIS_HEADERS ? open(headers) : undefined),
    }
  }
  if (name.startsWith('\u007fFLAC')) {
    // Mapping version, number of header packets, then the signature and STREAMINFO with its block
    // header.
    const numHeaders = (first[7] ?? 0) * 256 + (first[8] ?? 0)
    const decoder = createFlacDecoder(readStreamInfo(first.subarray(17)))
    return {
      ...common,
      open: async (headers) => (headers.length > Math.min(numHeaders, 64) ? decoder : undefined),
    }
  }
  return undefined
}

function decodeOrSkip(decoder: PacketDecoder, packet: Uint8Array): Pcm | undefined {
  try {
    return decoder.decode(packet)
  } catch (error) {
    if (error instanceof RangeError) throw error
    // One damaged packet does not end a recording.
    return undefined
  }
}

/** The last page may end before its last packet does. */
function trim(stream: OggStream, pcm: Pcm | undefined, granule: number | undefined) {
  const length = pcm?.channels[0]?.length ?? 0
  if (pcm === undefined || length === 0) return undefined
  stream.produced += length
  if (granule === undefined) return pcm
  const excess = stream.produced - (granule - stream.preSkip)
  if (excess <= 0 || excess >= length) return pcm
  stream.produced -= excess
  return sliceOf(pcm, 0, length - excess)
}
