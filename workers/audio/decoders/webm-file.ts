import { createFlacDecoder, readStreamInfo } from './flac.ts'
import { type MatroskaTrack, readMatroskaPackets } from './matroska.ts'
import { createOpusDecoder } from './opus.ts'
import { type PacketDecoder, type Pcm, UnsupportedAudioError } from './pcm.ts'
import { createVorbisDecoder } from './vorbis.ts'

/** Decodes the first audio track of a WebM or Matroska file. */
export async function* decodeWebm(bytes: Uint8Array): AsyncGenerator<Pcm> {
  let track: MatroskaTrack | undefined
  let decoder: PacketDecoder | undefined
  for (const packet of readMatroskaPackets(bytes, (chosen) => {
    track = chosen
  })) {
    if (track === undefined) continue
    decoder ??= await openTrack(track)
    const pcm = decodeOrSkip(decoder, packet)
    if (pcm !== undefined && (pcm.channels[0]?.length ?? 0) > 0) yield pcm
  }
}

async function openTrack({ codec, setup }: MatroskaTrack): Promise<PacketDecoder> {
  if (codec === 'A_OPUS') return createOpusDecoder(setup)
  if (codec === 'A_VORBIS') {
    const [identification, , setupHeader] = splitXiph(setup)
    if (identification === undefined || setupHeader === undefined) throw new Error('no headers')
    return createVorbisDecoder(identification, setupHeader)
  }
  // `fLaC`, then the metadata block header of STREAMINFO.
  if (codec === 'A_FLAC') return createFlacDecoder(readStreamInfo(setup.subarray(8)))
  throw new UnsupportedAudioError(codec)
}

/** Concatenated packets. The lengths of all but the last are in front, in steps of 255. */
function splitXiph(bytes: Uint8Array): Uint8Array[] {
  const lengths: number[] = []
  let at = 1
  for (let left = bytes[0] ?? 0; left > 0; left -= 1) {
    let length = 0
    while (bytes[at] === 255) {
      length += 255
      at += 1
    }
    lengths.push(length + (bytes[at] ?? 0))
    at += 1
  }
  const packets = lengths.map((length) => {
    at += length
    return bytes.subarray(at - length, at)
  })
  return [...packets, bytes.subarray(at)]
}

function decodeOrSkip(decoder: PacketDecoder, packet: Uint8Array): Pcm | undefined {
  try {
    return decoder.decode(packet)
  } catch (error) {
    if (error instanceof RangeError) throw error
    return undefined
  }
}
