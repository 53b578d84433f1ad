/** A document that matched, with its keyword score. */
interface KeywordMatch {
  readonly index: number
  readonly score: number
}

const K1 = 1.2 // how fast repetitions of a term stop to count
const B = 0.75 // how much a long document is held back

/**
 * BM25 (Robertson and Zaragoza 2009) over words and pairs of neighbouring words. Documents stream
 * by: of each only its length and the counts of the query's own terms are kept.
 */
export class KeywordRanking {
  readonly #terms: ReadonlyMap<string, number>
  readonly #documentFrequency: number[]
  readonly #lengths: number[] = []
  readonly #counts: { readonly document: number; readonly term: number; readonly count: number }[] =
    []

  constructor(query: string) {
    const terms = [...new Set(termsOf(query))]
    this.#terms = new Map(terms.map((term, index) => [term, index]))
    this.#documentFrequency = terms.map(() => 0)
  }

  /** Takes the next document. */
  add(text: string): void {
    const counts = new Map<number, number>()
    const terms = termsOf(text)
    for (const term of terms) {
      const known = this.#terms.get(term)
      if (known !== undefined) counts.set(known, (counts.get(known) ?? 0) + 1)
    }
    const document = this.#lengths.push(terms.length) - 1
    for (const [term, count] of counts) {
      this.#documentFrequency[term] = (this.#documentFrequency[term] ?? 0) + 1
      this.#counts.push({ document, term, count })
    }
  }

  /** The best documents, the best first; those that match nothing follow in their own order. */
  best(limit: number): readonly KeywordMatch[] {
    const scores = this.#lengths.map(() => 0)
    const total = this.#lengths.length
    const meanLength = this.#lengths.reduce((sum, length) => sum + length, 0) / Math.max(total, 1)
    for (const { document, term, count } of this.#counts) {
      const frequency = this.#documentFrequency[term] ?? 0
      const rarity = Math.log(1 + (total - frequency + 0.5) / (frequency + 0.5))
      const relativeLength = (this.#lengths[document] ?? 0) / Math.max(meanLength, 1)
      const saturation = (count * (K1 + 1)) / (count + K1 * (1 - B + B * relativeLength))
      scores[document] = (scores[document] ?? 0) + rarity * saturation
    }
    return scores
      .map((score, index) => ({ index, score }))
      .sort((one, other) => other.score - one.score || one.index - other.index)
      .slice(0, limit)
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
  const words = (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).filter(
    (word) => !STOP_WORDS.has(word),
  )
  const pairs = words.slice(1).map((word, index) => `${words[index]} ${word}`)
  return [...words, ...pairs]
}
