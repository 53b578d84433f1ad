import { OpusDecoder } from 'opus-decoder'

import { CHANNELS_MAX, type PacketDecoder, UnsupportedAudioError } from './pcm.ts'

const SAMPLE_RATE = 48_000
// RFC 6716, section 3.2: 120 ms, the most that a packet may last.
const PACKET_BYTES_MAX = 32_000 * 0.12

/** Decodes the packets of one Opus stream by its identification header (RFC 7845, section 5.1). */
export async function createOpusDecoder(head: Uint8Array): Promise<PacketDecoder> {
  const isHead = Buffer.from(head.subarray(0, 8)).toString() === 'OpusHead' && head.length >= 19
  if (!isHead) throw new Error('no Opus header')
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength)
  const channels = view.getUint8(9)
  if (channels === 0 || channels > CHANNELS_MAX) throw new UnsupportedAudioError('Opus layout')
  const gain = 10 ** (view.getInt16(16, true) / 5120)
  let skipped = view.getUint16(10, true)
  const decoder = new OpusDecoder({ channels, preSkip: 0, ...readMapping(head, channels) })
  await decoder.ready
  return {
    decode: (packet) => {
      if (packet.length === 0 || packet.length > PACKET_BYTES_MAX * channels) return undefined
      const { channelData, samplesDecoded } = decoder.decodeFrame(packet)
      // The first samples only initialize the decoder.
      const skip = Math.min(skipped, samplesDecoded)
      skipped -= skip
      return {
        channels: channelData.map((channel) =>
          channel.slice(skip, samplesDecoded).map((value) => value * gain),
        ),
        sampleRate: SAMPLE_RATE,
      }
    },
  }
}

function readMapping(head: Uint8Array, channels: number) {
  if (head[18] === 0) {
    if (channels > 2) throw new Error('channel mapping is missing')
    return {
      streamCount: 1,
      coupledStreamCount: channels - 1,
      channelMappingTable: [0, 1].slice(0, channels),
    }
  }
  const channelMappingTable = [...head.subarray(21, 21 + channels)]
  const streamCount = head[19] ?? 0
  const coupledStreamCount = head[20] ?? 0
  const isUsual =
    channelMappingTable.length === channels &&
    streamCount > 0 &&
    coupledStreamCount <= streamCount &&
    streamCount + coupledStreamCount <= CHANNELS_MAX
  if (!isUsual) throw new UnsupportedAudioError('Opus channel mapping')
  return { streamCount, coupledStreamCount, channelMappingTable }
}
