/** Longer sentences are cut, so that the first audio comes soon and memory is bounded. */
const SENTENCE_CHARS_MAX = 300
// Where a long sentence is cut, best first.
const CUTS = [/[;:.!?…]\s+/g, /,\s+/g, /\s+/g]
const HAS_WORD = /[\p{L}\p{N}]/u

/** The sentences of a text that have something to speak, in order. */
export function splitSentences(text: string): readonly string[] {
  const segmenter = new Intl.Segmenter('und', { granularity: 'sentence' })
  return [...segmenter.segment(text.replaceAll(/\s+/g, ' '))]
    .flatMap(({ segment }) => cutLong(segment.trim()))
    .filter((sentence) => HAS_WORD.test(sentence))
}

function cutLong(sentence: string): readonly string[] {
  const parts: string[] = []
  let rest = sentence
  while (rest.length > SENTENCE_CHARS_MAX) {
    const end = cutOf(rest.slice(0, SENTENCE_CHARS_MAX))
    parts.push(rest.slice(0, end).trim())
    rest = rest.slice(end)
  }
  return [...parts, rest.trim()]
}

/** The end of the last complete phrase in the second half, else of the last complete word. */
function cutOf(head: string): number {
  for (const pattern of CUTS) {
    const last = [...head.matchAll(pattern)].at(-1)
    const end = last === undefined ? 0 : last.index + last[0].length
    if (end > SENTENCE_CHARS_MAX / 2) return end
  }
  // Not between the halves of a surrogate pair.
  return /[\uD800-\uDBFF]$/.test(head) ? head.length - 1 : head.length
}
