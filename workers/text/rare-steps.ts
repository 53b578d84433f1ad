import { isRecord } from '#shared/json.ts'

/** Steps of `tokenizer.json` that the library does not support, and one that is replaced. */
const STAND_INS: Readonly<Record<string, object>> = {
  Nmt: { type: 'Lowercase' },
  'ByteLevel normalizer': { type: 'Lowercase' },
  CharDelimiterSplit: { type: 'WhitespaceSplit' },
  UnicodeScripts: { type: 'WhitespaceSplit' },
}

/** A normalizer or pre-tokenizer with only steps that the library supports. */
export function withKnownSteps(json: unknown, kind: 'normalizer' | 'pre_tokenizer'): unknown {
  if (!isRecord(json)) return json
  const list = kind === 'normalizer' ? 'normalizers' : 'pretokenizers'
  const steps = json[list]
  if (Array.isArray(steps)) {
    return { ...json, [list]: steps.map((step) => withKnownSteps(step, kind)) }
  }
  const isBytes = kind === 'normalizer' && json.type === 'ByteLevel'
  return STAND_INS[isBytes ? 'ByteLevel normalizer' : String(json.type)] ?? json
}

/** The normalizer of NMT models: removes control characters and unifies spaces. */
export function normalizeNmt(text: string): string {
  return text.replace(REMOVED, '').replace(SPACES, ' ')
}

/** Control characters, and characters that count as spaces, as inclusive ranges of code points. */
const REMOVED = anyOf([0x1, 0x8], [0xb, 0xb], [0xe, 0x1f], [0x7f, 0x7f], [0x8f, 0x8f], [0x9f, 0x9f])
const SPACES = anyOf(
  ...([
    [0x9, 0xa],
    [0xc, 0xd],
    [0x1680, 0x1680],
    [0x200b, 0x200f],
    [0x2028, 0x2029],
  ] as const),
  ...([
    [0x2581, 0x2581],
    [0xfeff, 0xfeff],
    [0xfffd, 0xfffd],
  ] as const),
)

function anyOf(...ranges: readonly (readonly [number, number])[]): RegExp {
  const hex = (point: number): string => `\\u{${point.toString(16)}}`
  return new RegExp(`[${ranges.map(([low, high]) => `${hex(low)}-${hex(high)}`).join('')}]`, 'gu')
}

/** The bytes of a text in GPT-2's printable characters. */
export function spellBytes(text: string): string {
  let spelled = ''
  for (const byte of Buffer.from(text)) spelled += BYTE_CHARACTERS[byte]
  return spelled
}

/** GPT-2's printable character of each byte. */
export const BYTE_CHARACTERS: readonly string[] = (() => {
  let others = 0
  return Array.from({ length: 256 }, (_, byte) => {
    const prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173)
    if (!prints) others += 1
    return String.fromCodePoint(prints ? byte : 255 + others)
  })
})()

// The scripts of Unicode 13, in which Hiragana and Katakana count as Han.
const SCRIPTS = (
  'Common Inherited Latin Han Greek Cyrillic Arabic Hebrew Devanagari Hangul Thai Bengali Tamil Telugu ' +
  'Kannada Malayalam Gujarati Gurmukhi Oriya Sinhala Lao Tibetan Myanmar Georgian Armenian Ethiopic Khmer ' +
  'Mongolian Cherokee Canadian_Aboriginal Ogham Runic Bopomofo Yi Syriac Thaana Braille Coptic Gothic ' +
  'Deseret Tagalog Hanunoo Buhid Tagbanwa Limbu Tai_Le Linear_B Ugaritic Shavian Osmanya Cypriot Buginese ' +
  'Glagolitic Tifinagh Syloti_Nagri Old_Persian Kharoshthi Balinese Cuneiform Phoenician Phags_Pa Nko ' +
  'Sundanese Lepcha Ol_Chiki Vai Saurashtra Kayah_Li Rejang Lycian Carian Lydian Cham Tai_Tham Tai_Viet ' +
  'Avestan Egyptian_Hieroglyphs Samaritan Lisu Bamum Javanese Meetei_Mayek Imperial_Aramaic ' +
  'Old_South_Arabian Inscriptional_Parthian Inscriptional_Pahlavi Old_Turkic Kaithi Batak Brahmi Mandaic ' +
  'Chakma Meroitic_Cursive Meroitic_Hieroglyphs Miao Sharada Sora_Sompeng Takri Adlam Nushu Osage Tangut'
).split(' ')
const SCRIPT_PATTERNS = SCRIPTS.map((name) => new RegExp(`^\\p{Script=${name}}`, 'u'))
const SCRIPT_CACHE_MAX = 65_536
const scripts = new Map<string, string>()

/**
 * Splits a text where its script changes; spaces and unknown characters belong to the preceding
 * part.
 */
export function splitByScript(text: string): string[] {
  const pieces: string[] = []
  let last: string | undefined
  for (const character of text) {
    const script = scriptOf(character)
    if (script !== undefined && script !== last) pieces.push('')
    if (script !== undefined) last = script
    // Text before the first character of a script is dropped.
    if (pieces.length > 0) pieces[pieces.length - 1] += character
  }
  return pieces
}

/** The script of a character; undefined for characters that fit any. */
function scriptOf(character: string): string | undefined {
  if (character === ' ') return undefined
  if (character === 'ー' || /[\p{Script=Hiragana}\p{Script=Katakana}]/u.test(character))
    return 'Han'
  const known = scripts.get(character)
  if (known !== undefined) return known
  const index = SCRIPT_PATTERNS.findIndex((pattern) => pattern.test(character))
  const script = SCRIPTS[index]
  if (script !== undefined && scripts.size < SCRIPT_CACHE_MAX) scripts.set(character, script)
  return script
}
