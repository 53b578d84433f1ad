/** How a model's tokens become text; each token contributes a run of bytes. */
export interface TokenPieces {
  /** The bytes that a token adds to a text that has already begun. */
  bytesOf(tokenId: number): Uint8Array
  /** The bytes of a token that begins a text: some tokenizers drop a space there. */
  firstBytesOf(tokenId: number): Uint8Array
  /** Whether the token is a marker that never appears in an answer. */
  isSpecial(tokenId: number): boolean
  /** Whether a token that directly repeats itself adds nothing. */
  readonly dropsRepeats?: boolean
  /** Token ids below this have bytes; a model may have more ids than its tokenizer. */
  readonly size: number
}

/** The parts of `tokenizer.json` that decide how tokens are spelled. */
export interface TokenizerJson {
  readonly model: {
    readonly type?: string
    readonly vocab: Readonly<Record<string, number>> | readonly (readonly [string, number])[]
  }
  readonly added_tokens?: readonly {
    readonly id: number
    readonly content: string
    readonly special?: boolean
  }[]
  readonly decoder?: DecoderJson | null
}

interface DecoderJson {
  readonly type: string
  readonly decoders?: readonly DecoderJson[]
  readonly pattern?: { readonly String?: string; readonly Regex?: string }
  readonly pad_token?: string
  readonly word_delimiter_token?: string
  readonly content?: string
  readonly replacement?: string
  readonly prefix?: string
  readonly cleanup?: boolean
  readonly suffix?: string
  readonly start?: number
}

/**
 * Spells every token of a vocabulary in bytes. Byte-level BPE, SentencePiece with byte fallback,
 * WordPiece and end-of-word BPE differ only in the rules that their decoder lists.
 */
export function buildTokenPieces(tokenizer: TokenizerJson): TokenPieces {
  const decoders = flatten(tokenizer.decoder ?? { type: 'Joined' })
  const rules = [...decoders.map(ruleOf), finish]
  const words = vocabularyOf(tokenizer)
  const special = new Set<number>()
  const added = new Set<number>()
  for (const token of tokenizer.added_tokens ?? []) {
    words[token.id] = token.content
    added.add(token.id)
    if (token.special === true) special.add(token.id)
  }
  const spell = (word: string | undefined, tokenId: number, isFirst: boolean): Uint8Array => {
    if (word === undefined) return NO_BYTES
    if (added.has(tokenId)) return encoder.encode(word)
    return rules.reduce<Spelling>((spelling, rule) => rule(spelling, isFirst), {
      text: word,
    }).bytes as Uint8Array
  }
  const later = Array.from(words, (word, tokenId) => spell(word, tokenId, false))
  const first = Array.from(words, (word, tokenId) => spell(word, tokenId, true))
  return {
    size: words.length,
    ...(decoders.some(({ type }) => type === 'CTC') && { dropsRepeats: true }),
    bytesOf: (tokenId) => later[tokenId] ?? NO_BYTES,
    firstBytesOf: (tokenId) => first[tokenId] ?? NO_BYTES,
    isSpecial: (tokenId) => special.has(tokenId),
  }
}

interface Spelling {
  readonly text: string
  /** Set by the rule that settles the bytes; later rules leave them alone. */
  readonly bytes?: Uint8Array
}

type Rule = (spelling: Spelling, isFirst: boolean) => Spelling

const encoder = new TextEncoder()
const NO_BYTES = new Uint8Array(0)

const finish: Rule = (spelling) =>
  spelling.bytes === undefined ? { ...spelling, bytes: encoder.encode(spelling.text) } : spelling

function flatten(decoder: DecoderJson): readonly DecoderJson[] {
  return decoder.type === 'Sequence' ? (decoder.decoders ?? []).flatMap(flatten) : [decoder]
}

function vocabularyOf({ model }: TokenizerJson): (string | undefined)[] {
  const words: (string | undefined)[] = []
  const entries = Array.isArray(model.vocab)
    ? model.vocab.map(([word], tokenId) => [word, tokenId] as const)
    : Object.entries(model.vocab as Readonly<Record<string, number>>)
  for (const [word, tokenId] of entries) words[tokenId as number] = word as string
  return words
}

/** One rule per decoder type of the Hugging Face format. Throws for an unknown type. */
function ruleOf(decoder: DecoderJson): Rule {
  switch (decoder.type) {
    case 'ByteLevel':
      return ({ text }) => ({ text, bytes: byteLevelBytes(text) })
    case 'ByteFallback':
      return ({ text, bytes }) => byteFallback(text) ?? { text, ...(bytes && { bytes }) }
    case 'Replace':
      return replaceRule(decoder)
    case 'Strip':
      return stripRule(decoder)
    case 'Metaspace':
      return metaspaceRule(decoder.replacement ?? '▁')
    case 'WordPiece':
      return wordPieceRule(decoder)
    case 'BPEDecoder':
      return onText((text) => text.replaceAll(decoder.suffix ?? '</w>', ' '))
    case 'CTC':
      return ctcRule(decoder)
    case 'Fuse':
      return (spelling) => spelling
    case 'Joined':
      return (spelling, isFirst) => (isFirst ? spelling : { text: ` ${spelling.text}` })
    default:
      throw new Error(`tokenizer.json: decoder type "${decoder.type}" is not supported`)
  }
}

function onText(change: (text: string, isFirst: boolean) => string): Rule {
  return (spelling, isFirst) =>
    spelling.bytes === undefined ? { text: change(spelling.text, isFirst) } : spelling
}

function replaceRule({ pattern, content }: DecoderJson): Rule {
  const sought = pattern?.String ?? (pattern?.Regex && new RegExp(pattern.Regex, 'gu'))
  if (sought === undefined) throw new Error('tokenizer.json: a Replace decoder needs a pattern')
  return onText((text) => text.replaceAll(sought, () => content ?? ''))
}

/** The tokens of speech models, one of which is empty and one a space. */
function ctcRule({
  pad_token: pad = '<pad>',
  word_delimiter_token: space = '|',
  cleanup,
}: DecoderJson): Rule {
  return onText((text) => {
    const shown = text.replaceAll(pad, '')
    return cleanup === true ? withoutSpaces(shown).replaceAll(space, ' ') : shown
  })
}

/** English text without the spaces that result from splitting it into words. */
function withoutSpaces(text: string): string {
  return text
    .replace(/ (?=[.?!,])/g, '')
    .replaceAll(" ' ", "'")
    .replace(/ (?=n't|'(?:m|s|ve|re))/g, '')
    .replaceAll(' do not', " don't")
}

function stripRule({ content, start }: DecoderJson): Rule {
  const stripped = content ?? ' '
  return onText((text, isFirst) => {
    let cut = 0
    while (isFirst && cut < (start ?? 0) && text[cut] === stripped) cut += 1
    return text.slice(cut)
  })
}

function metaspaceRule(replacement: string): Rule {
  return onText((text, isFirst) => {
    const spaced = text.replaceAll(replacement, ' ')
    return isFirst && spaced.startsWith(' ') ? spaced.slice(1) : spaced
  })
}

function wordPieceRule({ prefix = '##', cleanup }: DecoderJson): Rule {
  return onText((text, isFirst) => {
    if (isFirst) return text
    const joined = text.startsWith(prefix) ? text.slice(prefix.length) : ` ${text}`
    return cleanup === true ? joined.replace(/^ (?=[.?!,]|n't|'(?:m|s|ve|re))/, '') : joined
  })
}

function byteFallback(text: string): Spelling | undefined {
  const match = /^<0x([0-9A-Fa-f]{2})>$/.exec(text)
  if (match === null) return undefined
  const byte = Number.parseInt(match[1] as string, 16)
  // A complete character stays text, so that a leading space can still be stripped.
  return byte < 0x80 ? { text: String.fromCharCode(byte) } : { text, bytes: Uint8Array.of(byte) }
}

function byteLevelBytes(text: string): Uint8Array {
  return Uint8Array.from(text, (character) => BYTE_OF_CHARACTER.get(character) ?? 0x3f)
}

/** GPT-2's printable stand-ins: printable bytes represent themselves, others from U+0100 on. */
const BYTE_OF_CHARACTER: ReadonlyMap<string, number> = new Map(
  (() => {
    let replacements = 0
    return Array.from({ length: 256 }, (_, byte) => {
      const prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173)
      const character = String.fromCodePoint(prints ? byte : 256 + replacements)
      if (!prints) replacements += 1
      return [character, byte] as const
    })
  })(),
)

/**
 * Converts tokens to text one at a time. The joined results are the text of all tokens decoded at
 * once: the bytes of an incomplete character are withheld until it is complete.
 */
export class IncrementalDetokenizer {
  readonly #pieces: TokenPieces
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  #hasBegun: boolean
  #previous: number | undefined

  /** `continuesText` is true if text precedes the first token, so that its space stays. */
  constructor(pieces: TokenPieces, { continuesText }: { readonly continuesText: boolean }) {
    this.#pieces = pieces
    this.#hasBegun = continuesText
  }

  /** The characters that this token completes. */
  push(tokenId: number): string {
    const isRepeat = this.#pieces.dropsRepeats === true && tokenId === this.#previous
    this.#previous = tokenId
    if (isRepeat || this.#pieces.isSpecial(tokenId)) return ''
    const bytes = this.#hasBegun
      ? this.#pieces.bytesOf(tokenId)
      : this.#pieces.firstBytesOf(tokenId)
    this.#hasBegun = true
    return this.#decoder.decode(bytes, { stream: true })
  }

  /** The end of the text: an incomplete character becomes U+FFFD. */
  flush(): string {
    return this.#decoder.decode()
  }
}

/** The text of a complete list of tokens, without special ones. */
export function decodeTokens(
  pieces: TokenPieces,
  tokenIds: readonly number[],
  options: { readonly continuesText: boolean } = { continuesText: false },
): string {
  const detokenizer = new IncrementalDetokenizer(pieces, options)
  return tokenIds.map((tokenId) => detokenizer.push(tokenId)).join('') + detokenizer.flush()
}

/** The part of an answer that may be shown after some text has arrived. */
interface StopVerdict {
  readonly text: string
  /** True once a stop string has been found; text after it is never shown. */
  readonly isStopped: boolean
}

/**
 * Watches a growing text for stop strings. It withholds exactly the longest suffix of the text that
 * could be the beginning of a stop string, so that no part of one is ever shown.
 */
export class StopStrings {
  readonly #stops: readonly string[]
  readonly #keepsStop: boolean
  #withheld = ''

  /** `keepsStop` includes the stop string in the text. */
  constructor(stops: readonly string[], { keepsStop = false } = {}) {
    this.#stops = stops.filter((stop) => stop !== '')
    this.#keepsStop = keepsStop
  }

  push(text: string): StopVerdict {
    if (this.#stops.length === 0) return { text, isStopped: false }
    const seen = this.#withheld + text
    const first = this.#firstStop(seen)
    if (first !== undefined) {
      this.#withheld = ''
      const text = seen.slice(0, this.#keepsStop ? first.end : first.start)
      return { text, isStopped: true }
    }
    const shown = seen.length - this.#suspiciousLength(seen)
    this.#withheld = seen.slice(shown)
    return { text: seen.slice(0, shown), isStopped: false }
  }

  /** The end of the text: the withheld text was not a stop string. */
  flush(): string {
    const rest = this.#withheld
    this.#withheld = ''
    return rest
  }

  /** The stop string that is complete first, regardless of how the text was split. */
  #firstStop(seen: string): { start: number; end: number } | undefined {
    let first: { start: number; end: number } | undefined
    for (const stop of this.#stops) {
      const start = seen.indexOf(stop)
      if (start < 0) continue
      const end = start + stop.length
      const isEarlier =
        first === undefined || end < first.end || (end === first.end && start < first.start)
      if (isEarlier) first = { start, end }
    }
    return first
  }

  #suspiciousLength(seen: string): number {
    const longest = Math.max(...this.#stops.map((stop) => stop.length - 1))
    for (let length = Math.min(longest, seen.length); length > 0; length -= 1) {
      const end = seen.slice(seen.length - length)
      if (this.#stops.some((stop) => stop.length > length && stop.startsWith(end))) return length
    }
    return 0
  }
}
