const K1 = 1.2 // how soon repetitions of a term stop counting
const B = 0.75 // how strongly long documents are penalized
/** Longer texts exceed every context, so the rest of their words cannot matter. */
const CHARACTERS_MAX = 100_000

/**
 * BM25 (Robertson and Zaragoza 2009) over words and pairs of neighbouring words. Documents are
 * streamed twice: first each is added, then each is scored. No document is kept, so the memory
 * depends only on the query.
 */
export class KeywordRanking {
  readonly #terms: ReadonlyMap<string, number>
  readonly #documentFrequency: number[]
  #documents = 0
  #length = 0

  constructor(query: string) {
    const terms = [...new Set(termsOf(query))]
    this.#terms = new Map(terms.map((term, index) => [term, index]))
    this.#documentFrequency = terms.map(() => 0)
  }

  /** How many documents were added. */
  get documents(): number {
    return this.#documents
  }

  /** Adds the next document to the statistics. */
  add(text: string): void {
    const { counts, length } = this.#count(text)
    this.#documents += 1
    this.#length += length
    for (const term of counts.keys()) {
      this.#documentFrequency[term] = (this.#documentFrequency[term] ?? 0) + 1
    }
  }

  /** The score of a document among those that were added; 0 where no term matches. */
  scoreOf(text: string): number {
    const { counts, length } = this.#count(text)
    const meanLength = this.#length / Math.max(this.#documents, 1)
    const relativeLength = length / Math.max(meanLength, 1)
    let score = 0
    for (const [term, count] of counts) {
      const frequency = this.#documentFrequency[term] ?? 0
      const rarity = Math.log(1 + (this.#documents - frequency + 0.5) / (frequency + 0.5))
      score += (rarity * (count * (K1 + 1))) / (count + K1 * (1 - B + B * relativeLength))
    }
    return score
  }

  /** How often a document has each term of the query, and how many terms it has. */
  #count(text: string): { readonly counts: ReadonlyMap<number, number>; readonly length: number } {
    const counts = new Map<number, number>()
    const terms = termsOf(text)
    for (const term of terms) {
      const known = this.#terms.get(term)
      if (known !== undefined) counts.set(known, (counts.get(known) ?? 0) + 1)
    }
    return { counts, length: terms.length }
  }
}

/** The best documents by score; of two with the same score, the earlier one. */
export class BestDocuments {
  readonly #limit: number
  #best: { readonly index: number; readonly score: number }[] = []

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Adds the next document; holds at most twice as many as the limit. */
  add(index: number, score: number): void {
    this.#best.push({ index, score })
    if (this.#best.length >= 2 * this.#limit) this.#cut()
  }

  /** The positions of the best documents. */
  get indices(): ReadonlySet<number> {
    this.#cut()
    return new Set(this.#best.map(({ index }) => index))
  }

  #cut(): void {
    this.#best = this.#best
      .sort((one, other) => other.score - one.score || one.index - other.index)
      .slice(0, this.#limit)
  }
}

// The stop words of Lucene's English analyzer.
const STOP_WORDS = new Set(
  (
    'a an and are as at be but by for if in into is it no not of on or such that the their then ' +
    'there these they this to was will with'
  ).split(' '),
)

/** Words in lower case without stop words, and pairs of those that are left. */
export function termsOf(text: string): string[] {
  const words = (
    text
      .slice(0, CHARACTERS_MAX)
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? []
  ).filter((word) => !STOP_WORDS.has(word))
  const pairs = words.slice(1).map((word, index) => `${words[index]} ${word}`)
  return [...words, ...pairs]
}
