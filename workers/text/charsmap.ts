/**
 * The normalizer of SentencePiece as stored in `tokenizer.json`: a table of replacements, which is
 * a double-array trie over UTF-8 bytes (Darts, Yata 2007) followed by the replacements, each
 * terminated by a zero byte. A cluster of up to five bytes is replaced as a whole by its shortest
 * known prefix; in longer ones each code point is replaced separately. SentencePiece itself knows
 * no clusters and replaces the longest known prefix of the rest (`isLongest`).
 */
export function createCharsmap(base64: string, isLongest = false): (text: string) => string {
  const bytes = Buffer.from(base64, 'base64')
  const trieBytes = bytes.length < 4 ? -1 : bytes.readUInt32LE(0)
  if (trieBytes < 4 || trieBytes % 4 !== 0 || 4 + trieBytes > bytes.length) {
    throw new Error('tokenizer.json: the precompiled_charsmap is damaged')
  }
  const trie = Uint32Array.from({ length: trieBytes / 4 }, (_, at) =>
    bytes.readUInt32LE(4 + at * 4),
  )
  const replacements = bytes.subarray(4 + trieBytes)
  checkReplacements(replacements)
  const find = (part: string): string | undefined => {
    const at = findShortest(trie, Buffer.from(part))
    if (at === undefined) return undefined
    const end = replacements.indexOf(0, at)
    return replacements.toString('utf8', at, end < 0 ? undefined : end)
  }
  if (isLongest) return (text) => replaceLongest(trie, replacements, Buffer.from(text))
  const ofAscii = Array.from({ length: 128 }, (_, code) => {
    const character = String.fromCharCode(code)
    return find(character) ?? character
  })
  const segmenter = new Intl.Segmenter('und', { granularity: 'grapheme' })
  const replaceCluster = (cluster: string): string => {
    const whole = Buffer.byteLength(cluster) < CLUSTER_BYTES_MAX ? find(cluster) : undefined
    return whole ?? Array.from(cluster, (character) => find(character) ?? character).join('')
  }
  return (text) =>
    text.replace(PLAIN_OR_OTHER, (run) => {
      if (PLAIN.test(run)) return Array.from(run, (c) => ofAscii[c.charCodeAt(0)]).join('')
      return Array.from(segmenter.segment(run), ({ segment }) => replaceCluster(segment)).join('')
    })
}

function replaceLongest(trie: Uint32Array, replacements: Buffer, text: Buffer): string {
  const parts: Buffer[] = []
  let kept = 0
  for (let at = 0; at < text.length; ) {
    const found = findLongest(trie, text, at)
    if (found === undefined) {
      at += 1
      // A character has no key that begins within it.
      while (((text[at] ?? 0) & 0xc0) === 0x80) at += 1
      continue
    }
    const end = replacements.indexOf(0, found.value)
    parts.push(text.subarray(kept, at))
    parts.push(replacements.subarray(found.value, end < 0 ? undefined : end))
    at += found.length
    kept = at
  }
  return Buffer.concat([...parts, text.subarray(kept)]).toString()
}

const REPLACEMENT_BYTES_MAX = 256 // Unicode's longest has 33

function checkReplacements(replacements: Buffer): void {
  for (let start = 0; start < replacements.length; ) {
    const zero = replacements.indexOf(0, start)
    const end = zero < 0 ? replacements.length : zero
    if (end - start > REPLACEMENT_BYTES_MAX) {
      throw new Error('tokenizer.json: the precompiled_charsmap has too long a replacement')
    }
    start = end + 1
  }
}

const CLUSTER_BYTES_MAX = 6
// Followed by another one, or at the end, a printable ASCII character is a cluster by itself.
const PLAIN_OR_OTHER = /[ -~]+(?=[ -~]|$)|(?:[ -~]?[^ -~]+)+|[ -~]/gu
const PLAIN = /^[ -~]*$/

/** The value of the shortest key that is a prefix of the bytes. */
function findShortest(trie: Uint32Array, bytes: Uint8Array): number | undefined {
  let node = offsetOf(trie[0] as number)
  for (const byte of bytes) {
    if (byte === 0) return undefined
    node ^= byte
    const unit = trie[node]
    if (unit === undefined || (unit & 0x8000_00ff) >>> 0 !== byte) return undefined
    node ^= offsetOf(unit)
    if (((unit >>> 8) & 1) === 1) return (trie[node] ?? 0) & 0x7fff_ffff
  }
  return undefined
}

/** The longest key at a place, and its value. */
function findLongest(
  trie: Uint32Array,
  bytes: Uint8Array,
  start: number,
): { readonly length: number; readonly value: number } | undefined {
  let node = offsetOf(trie[0] as number)
  let found: { length: number; value: number } | undefined
  for (let at = start; at < bytes.length; at += 1) {
    const byte = bytes[at] as number
    node ^= byte
    const unit = trie[node]
    if (byte === 0 || unit === undefined || (unit & 0x8000_00ff) >>> 0 !== byte) return found
    node ^= offsetOf(unit)
    if (((unit >>> 8) & 1) === 1) {
      found = { length: at + 1 - start, value: (trie[node] ?? 0) & 0x7fff_ffff }
    }
  }
  return found
}

function offsetOf(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6)
}
