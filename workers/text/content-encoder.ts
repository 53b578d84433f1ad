import type { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers'

import type { ContentSpan, Origin } from './content-spans.ts'

/** A token, or the words between two tokens, which the model splits. */
export type EncodedPart = string | readonly string[]

/** Parts of the library's tokenizer that are missing from its declarations. */
interface Inside {
  readonly added_tokens: readonly AddedToken[]
  readonly added_tokens_map: ReadonlyMap<string, AddedToken>
  readonly normalizer: ((text: string) => string) | null
  readonly pre_tokenizer:
    | ((text: string, options: { readonly section_index: number }) => readonly string[])
    | null
  readonly splitter_normalized: Splitter
  readonly config: { readonly additional_special_tokens?: readonly unknown[] | null }
  readonly model: ModelStep
}

interface Splitter {
  split(text: string): string[]
}

interface ModelStep {
  (words: readonly string[]): string[]
  _call: (words: readonly string[]) => string[]
  readonly unk_token?: string
}

interface Section {
  readonly text: string
  readonly token: AddedToken | undefined
}

/**
 * Encodes texts that contain content: control tokens count only if the template wrote them.
 * `undefined` means that the content contains none, so that the library's own encoding is the same.
 */
interface ContentEncoder {
  findParts(text: string, content: readonly ContentSpan[]): readonly EncodedPart[] | undefined
}

/**
 * Builds the encoder of a tokenizer. `isTag` identifies added tokens that are not marked as special
 * but structure a text, such as `<tool_call>`.
 */
export function createContentEncoder(
  library: LibraryTokenizer,
  isTag: (content: string) => boolean,
): ContentEncoder {
  const inside = library as unknown as Inside
  const levels = levelsOf(inside, isTag)
  const control = new Map([...levels].filter(([, level]) => level !== 'content'))
  protectModel(inside.model, new Set(levels.keys()), control)
  const forged = new TokenFinder(control)
  const isEarly = (token: AddedToken): boolean =>
    !token.normalized || inside.normalizer === null || control.has(token.content)
  const early = inside.added_tokens.filter(isEarly)
  const finder = new TokenFinder(
    early.map(({ content }) => [content, levels.get(content) ?? 'content']),
  )
  const late = inside.added_tokens.filter((token) => !isEarly(token))
  const normalizes = inside.added_tokens.some(
    (token) => token.normalized && control.has(token.content),
  )
  const tools = { inside, lateTokens: lateTokensOf(inside, late) }

  return {
    findParts(text, content) {
      if (content.length === 0) return undefined
      const isForged = forged.hasForged(text, content)
      if (!isForged && !(normalizes && isForgedNormalized(inside, control, text, content))) {
        return undefined
      }
      return encodeSections(splitSections(inside, finder, text, content), tools)
    },
  }
}

function levelsOf(inside: Inside, isTag: (content: string) => boolean): Map<string, TokenLevel> {
  const named = new Set(inside.config.additional_special_tokens ?? [])
  return new Map(
    inside.added_tokens.map(({ content, special }) => {
      // Runs of white space and single characters, such as the `!` that CLIP pads with, are
      // ordinary text, even if the file marks them as special.
      if (content.trim() === '' || Array.from(content).length === 1) return [content, 'content']
      if (special || named.has(content)) return [content, 'template']
      return [content, isTag(content) ? 'answer' : 'content']
    }),
  )
}

/** Tokens that are found after the normalizer, by their normalized spelling. */
function lateTokensOf(
  { normalizer }: Inside,
  late: readonly AddedToken[],
): ReadonlyMap<string, AddedToken> {
  return new Map(
    late.map((token) => [normalizer === null ? token.content : normalizer(token.content), token]),
  )
}

/**
 * Some normalizers turn other characters, such as full-width ones, into those of a token. Tokens
 * that are matched after the normalizer would then be found in content.
 */
function isForgedNormalized(
  { normalizer }: Inside,
  control: ReadonlyMap<string, TokenLevel>,
  text: string,
  content: readonly ContentSpan[],
): boolean {
  if (normalizer === null) return false
  const spellings = [...control.keys()].map((token) => normalizer(token).trim())
  return content.some(({ start, end }) => {
    const normalized = normalizer(text.slice(start, end))
    return spellings.some((spelling) => spelling !== '' && normalized.includes(spelling))
  })
}

function splitSections(
  inside: Inside,
  finder: TokenFinder,
  text: string,
  content: readonly ContentSpan[],
): Section[] {
  const sections: Section[] = []
  let from = 0
  const addText = (end: number): void => {
    if (end > from) sections.push({ text: text.slice(from, end), token: undefined })
  }
  for (const { start, end } of finder.split(text, content)) {
    addText(start)
    const token = text.slice(start, end)
    sections.push({ text: token, token: inside.added_tokens_map.get(token) })
    from = end
  }
  addText(text.length)
  return trimSections(sections)
}

/** Some tokens absorb the white space around them. */
function trimSections(sections: readonly Section[]): Section[] {
  return sections.map(({ text, token }, index) => {
    if (token !== undefined) return { text, token }
    const start = sections[index - 1]?.token?.rstrip === true ? text.trimStart() : text
    return { text: sections[index + 1]?.token?.lstrip === true ? start.trimEnd() : start, token }
  })
}

/** Encodes each section like the library, except for the tokens that it may not contain. */
function encodeSections(
  sections: readonly Section[],
  tools: { readonly inside: Inside; readonly lateTokens: ReadonlyMap<string, AddedToken> },
): EncodedPart[] {
  const { inside, lateTokens } = tools
  const finder = new TokenFinder([...lateTokens.keys()].map((content) => [content, 'content']))
  return sections.flatMap(({ text, token }, sectionIndex): EncodedPart[] => {
    if (token !== undefined) return [token.content]
    const normalized = inside.normalizer === null ? text : inside.normalizer(text)
    const inner = splitNormalized(normalized, finder, lateTokens)
    return inner.flatMap((section): EncodedPart[] => {
      if (section.token !== undefined) return [section.token.content]
      if (section.text === '') return []
      const words = inside.pre_tokenizer?.(section.text, { section_index: sectionIndex })
      return [words ?? [section.text]]
    })
  })
}

function splitNormalized(
  text: string,
  finder: TokenFinder,
  tokens: ReadonlyMap<string, AddedToken>,
): Section[] {
  const sections: Section[] = []
  let from = 0
  for (const { start, end } of finder.split(text, [])) {
    sections.push({ text: text.slice(from, start), token: undefined })
    sections.push({ text: text.slice(start, end), token: tokens.get(text.slice(start, end)) })
    from = end
  }
  sections.push({ text: text.slice(from), token: undefined })
  return trimSections(sections)
}

/**
 * Some vocabularies contain the spelling of control tokens as words, but a word must never be
 * encoded as one. Such a word is split character by character.
 */
function protectModel(
  model: ModelStep,
  added: ReadonlySet<string>,
  control: ReadonlyMap<string, TokenLevel>,
): void {
  const encode = model._call.bind(model)
  const isForged = (token: string): boolean =>
    token !== model.unk_token && added.has(token) && control.get(token) === 'template'
  model._call = (words) => {
    const tokens = encode(words)
    if (!tokens.some(isForged)) return tokens
    return tokens.flatMap((token) =>
      isForged(token)
        ? Array.from(token)
            .flatMap((letter) => encode([letter]))
            .filter((part) => !isForged(part))
        : token,
    )
  }
}

/** An added token of `tokenizer.json`. */
interface AddedToken {
  readonly content: string
  readonly special: boolean
  readonly normalized: boolean
  readonly lstrip: boolean
  readonly rstrip: boolean
}

/**
 * The author whose text may contain a token as a control token: `template` for special tokens,
 * `answer` for tags such as `<think>` that the model itself writes, `content` for everything else,
 * such as runs of spaces.
 */
type TokenLevel = Origin

const RANKS: Readonly<Record<Origin, number>> = { content: 0, answer: 1, template: 2 }

// Some vocabularies have elements of HTML as added tokens; they are ordinary words of documents.
const HTML_ELEMENTS: ReadonlySet<string> = new Set(
  (
    'a b blockquote body br caption center code col dd del div dl dt em font footer form h1 h2 h3 h4 h5 h6 ' +
    'head header hr html i img input ins label li link main meta nav ol option p pre q s script section ' +
    'select small span strong style sub sup table tbody td textarea tfoot th thead title tr u ul video'
  ).split(' '),
)

/** Whether an added token that is not marked as special looks structural, such as `<think>`. */
export function looksLikeTag(token: string): boolean {
  const name = /^(?:<\/?([^<>\s]+)>|\[\/?([^[\]\s]+)\])$/.exec(token)
  return name !== null && !HTML_ELEMENTS.has(name[1]?.toLowerCase() ?? '')
}

interface TrieNode {
  readonly next: Map<number, TrieNode>
  level?: TokenLevel
}

/** Finds tokens in texts that contain content. */
class TokenFinder {
  readonly #root: TrieNode = { next: new Map() }
  readonly #firstCharacters: RegExp | undefined

  constructor(tokens: Iterable<readonly [content: string, level: TokenLevel]>) {
    const first = new Set<string>()
    for (const [content, level] of tokens) {
      if (content === '') continue
      first.add(content.charAt(0))
      let node = this.#root
      for (let at = 0; at < content.length; at += 1) {
        const code = content.charCodeAt(at)
        const next = node.next.get(code) ?? { next: new Map() }
        node.next.set(code, next)
        node = next
      }
      node.level = level
    }
    const characters = [...first].map((character) => RegExp.escape(character)).join('')
    if (characters !== '') this.#firstCharacters = new RegExp(`[${characters}]`, 'g')
  }

  /**
   * Whether content contains a token that only the template may write, even within a longer one.
   */
  hasForged(text: string, content: readonly ContentSpan[]): boolean {
    if (content.length === 0) return false
    const origins = new OriginReader(content)
    for (const start of this.#candidates(text)) {
      for (const { end, level } of this.#matchesAt(text, start)) {
        if (!origins.allows(start, end, level)) return true
      }
    }
    return false
  }

  /** The valid tokens, from left to right, the longest first. */
  *split(text: string, content: readonly ContentSpan[]): Generator<{ start: number; end: number }> {
    const origins = new OriginReader(content)
    let from = 0
    for (const start of this.#candidates(text)) {
      if (start < from) continue
      let longest = 0
      for (const { end, level } of this.#matchesAt(text, start)) {
        if (origins.allows(start, end, level)) longest = end
      }
      if (longest === 0) continue
      yield { start, end: longest }
      from = longest
    }
  }

  *#candidates(text: string): Generator<number> {
    if (this.#firstCharacters === undefined) return
    for (const { index } of text.matchAll(this.#firstCharacters)) yield index
  }

  *#matchesAt(text: string, start: number): Generator<{ end: number; level: TokenLevel }> {
    let node: TrieNode | undefined = this.#root
    for (let at = start; node !== undefined; at += 1) {
      if (node.level !== undefined) yield { end: at, level: node.level }
      node = node.next.get(text.charCodeAt(at))
    }
  }
}

/** Looks up the author of a part of a text, for parts at increasing positions. */
class OriginReader {
  readonly #content: readonly ContentSpan[]
  #at = 0

  constructor(content: readonly ContentSpan[]) {
    this.#content = content
  }

  allows(start: number, end: number, level: TokenLevel): boolean {
    while ((this.#content[this.#at]?.end ?? Infinity) <= start) this.#at += 1
    for (let at = this.#at; ; at += 1) {
      const span = this.#content[at]
      if (span === undefined || span.start >= end) return true
      if (RANKS[span.origin] < RANKS[level]) return false
    }
  }
}
