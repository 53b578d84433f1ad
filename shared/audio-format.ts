/** The containers that a recording may come in, recognized by their first bytes. */
export type AudioFormat = 'aac' | 'flac' | 'mp3' | 'mp4' | 'ogg' | 'wav' | 'webm'

const ID3_HEADER_BYTES = 10

/** The container of a file by its first bytes; undefined for anything else. */
export function detectAudioFormat(head: Uint8Array): AudioFormat | undefined {
  const text = (from: number, to: number) => Buffer.from(head.subarray(from, to)).toString('latin1')
  if (['RIFF', 'RF64', 'BW64'].includes(text(0, 4)) && text(8, 12) === 'WAVE') return 'wav'
  if (text(0, 4) === 'OggS') return 'ogg'
  if (text(4, 8) === 'ftyp') return 'mp4'
  if (text(0, 4) === '\u001aE\u00df\u00a3') return 'webm'
  const tag = id3Length(head)
  // A tag with a cover image is longer than `head`. ID3 tags are mostly written for MP3.
  if (tag > head.length - 4) return 'mp3'
  if (text(tag, tag + 4) === 'fLaC') return 'flac'
  const [first = 0, second = 0] = head.subarray(tag)
  // The sync word of MPEG audio; layer 0 means AAC in ADTS.
  if (first !== 0xff || (second & 0xe0) !== 0xe0) return undefined
  return (second & 0x06) === 0 ? 'aac' : 'mp3'
}

/**
 * The bytes of an ID3v2 tag at the start of a file (id3.org/id3v2.4.0-structure), 0 without one.
 */
export function id3Length(head: Uint8Array): number {
  const isTag = Buffer.from(head.subarray(0, 3)).toString('latin1') === 'ID3'
  if (!isTag || head.length < ID3_HEADER_BYTES) return 0
  const [flags = 0, ...size] = head.subarray(5, ID3_HEADER_BYTES)
  const length = size.reduce((sum, byte) => sum * 128 + (byte & 0x7f), 0)
  const footer = (flags & 0x10) === 0 ? 0 : ID3_HEADER_BYTES
  return ID3_HEADER_BYTES + length + footer
}
