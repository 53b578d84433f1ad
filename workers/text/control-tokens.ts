import type { ContentSpan, Origin } from './content-spans.ts'

/** An added token of `tokenizer.json`. */
export interface AddedToken {
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
export type TokenLevel = Origin

const RANKS: Readonly<Record<Origin, number>> = { content: 0, answer: 1, template: 2 }

// Some vocabularies have elements of HTML as added tokens; they are ordinary words of documents.
const HTML_ELEMENTS: ReadonlySet<string> = new Set(
  (
    'a b blockquote body br caption center code col dd del div dl dt em font footer form h1 h2 h3 h4 h5 h6 ' +
    'head header hr html i img input ins label li link main meta nav ol option p pre q s script section ' +
    'select small span strong style sub sup table tbody td textarea tfoot th thead title tr u ul video'
  ).split(' '),
)

/** Whether an added token that is not marked as special looks like structure, such as `<think>`. */
export function looksLikeTag(token: string): boolean {
  const name = /^(?:<\/?([^<>\s]+)>|\[\/?([^[\]\s]+)\])$/.exec(token)
  return name !== null && !HTML_ELEMENTS.has(name[1]?.toLowerCase() ?? '')
}

interface TrieNode {
  readonly next: Map<number, TrieNode>
  level?: TokenLevel
}

/** Finds tokens in texts of which parts are content. */
export class TokenFinder {
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

  /** Whether content holds a token that only the template may write, even within a longer one. */
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

  /** The tokens that count, from left to right, the longest first. */
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

/** Looks up who wrote a part of a text, for parts that begin further and further on. */
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
