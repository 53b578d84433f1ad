import { detectAudioFormat, id3Length } from '#shared/audio-format.ts'

import { decodeFlac } from './flac.ts'
import { decodeMp3 } from './mp3.ts'
import { decodeOgg } from './ogg-file.ts'
import { type Pcm, UnsupportedAudioError } from './pcm.ts'
import { decodeWebm } from './webm-file.ts'

// Integers, floats, and the extensible format, which states one of them.
const PLAIN_WAV_TAGS = [1, 3, 0xff_fe]

/** Decodes a whole file in the container that its first bytes show. */
export function decodeFile(bytes: Uint8Array): AsyncIterable<Pcm> | Iterable<Pcm> {
  const format = detectAudioFormat(bytes)
  const start = id3Length(bytes)
  if (format === 'mp3') return decodeMp3(bytes.subarray(start))
  if (format === 'flac') return decodeFlac(bytes, start)
  if (format === 'ogg') return decodeOgg(bytes)
  if (format === 'webm') return decodeWebm(bytes)
  if (format === undefined || (format === 'wav' && !isCompressedWav(bytes))) {
    throw new Error('no recording')
  }
  throw new UnsupportedAudioError(format)
}

/** Whether a WAV file that `openWav` cannot read is compressed rather than damaged. */
function isCompressedWav(bytes: Uint8Array): boolean {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, 256))
  const form = head.indexOf('fmt ')
  if (form < 0 || form + 10 > head.length) return false
  return !PLAIN_WAV_TAGS.includes(head.readUInt16LE(form + 8))
}
