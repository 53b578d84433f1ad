import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'

import { type Pcm, sliceOf } from './pcm.ts'

const PIECE_SECONDS = 0.5
const SAMPLE_BYTES = 2

const DECODER_DELAY = 529 // samples of delay in every layer III decoder
const FRAME_SAMPLES = { mpeg1: 1152, mpeg2: 576 }

/**
 * The exports of the WebAssembly module `minimp3-wasm` (minimp3 itself is in the public domain).
 */
interface Minimp3 {
  readonly memory: { readonly buffer: ArrayBuffer }
  decoder_init(): void
  decoder_set_mp3_data_size(bytes: number): void
  decoder_mp3_data_offset(): number
  decoder_decode(seconds: number): void
  decoder_pcm_data_offset(): number
  decode_results_sampling_rate(): number
  decode_results_num_channels(): number
  decode_results_num_samples(): number
}

/** Decodes MPEG audio, layer III. Bytes that are not frames are skipped. */
export async function* decodeMp3(bytes: Uint8Array): AsyncGenerator<Pcm> {
  const decoder = await loadDecoder()
  decoder.decoder_init()
  decoder.decoder_set_mp3_data_size(bytes.length)
  new Uint8Array(decoder.memory.buffer, decoder.decoder_mp3_data_offset(), bytes.length).set(bytes)
  const { skip, length } = readGapless(bytes)
  for (let at = -skip; ; ) {
    decoder.decoder_decode(PIECE_SECONDS)
    const count = decoder.decode_results_num_samples()
    const numChannels = decoder.decode_results_num_channels()
    if (count === 0 || numChannels === 0) return
    const start = decoder.decoder_pcm_data_offset()
    const end = start + count * SAMPLE_BYTES
    const samples = new Int16Array(decoder.memory.buffer.slice(start, end))
    const channels = Array.from({ length: numChannels }, (_, channel) => {
      const values = new Float32Array(Math.floor(count / numChannels))
      for (let i = 0; i < values.length; i += 1) {
        values[i] = (samples[i * numChannels + channel] ?? 0) / 32_768
      }
      return values
    })
    const pcm = { channels, sampleRate: decoder.decode_results_sampling_rate() }
    const pieceLength = channels[0]?.length ?? 0
    yield sliceOf(pcm, Math.min(Math.max(0, -at), pieceLength), Math.max(0, length - at))
    at += pieceLength
  }
}

/**
 * The “Info tag” of LAME, a first frame without sound, which states the numbers of samples that the
 * encoder added before and after the recording. The frame itself decodes to silence.
 */
function readGapless(bytes: Uint8Array): { skip: number; length: number } {
  const whole = { skip: 0, length: Number.POSITIVE_INFINITY }
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, 4096))
  const tag = Math.max(head.subarray(0, 64).indexOf('Xing'), head.subarray(0, 64).indexOf('Info'))
  if (head[0] !== 0xff || tag < 0 || head.length < tag + 152) return whole
  const frameSamples = ((head[1] ?? 0) & 0x08) === 0 ? FRAME_SAMPLES.mpeg2 : FRAME_SAMPLES.mpeg1
  const flags = head.readUInt32BE(tag + 4)
  // Frames, bytes, seek table, quality: each is present if its flag is set.
  const lame = tag + 8 + (flags & 1) * 4 + (flags & 2) * 2 + (flags & 4) * 25 + (flags & 8) / 2
  if ((flags & 1) === 0 || !/^(LAME|Lav)/.test(head.toString('latin1', lame, lame + 4))) {
    return { ...whole, skip: frameSamples }
  }
  const gaps = head.readUIntBE(lame + 21, 3)
  const delay = gaps >> 12
  const length = head.readUInt32BE(tag + 8) * frameSamples - delay - (gaps & 0xfff)
  return { skip: frameSamples + delay + DECODER_DELAY, length: length > 0 ? length : whole.length }
}

async function loadDecoder(): Promise<Minimp3> {
  const path = fileURLToPath(import.meta.resolve('minimp3-wasm/dist/decoder.opt.wasm'))
  const { instance } = await WebAssembly.instantiate(await readFile(path), {})
  // A new instance per file, so that no state of one recording remains for the next.
  return instance.exports as unknown as Minimp3
}
