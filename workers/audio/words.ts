import type { AudioSegment, AudioWord } from '#shared/contracts/audio.ts'

import { roundToHundredths } from './segments.ts'

/**
 * Words with times. The hub's decoder exports do not return attention weights, so a segment's time
 * is divided among its words by their length: an approximation, exact at the segment's ends.
 */
export function timeWords(segments: readonly AudioSegment[]): readonly AudioWord[] {
  return segments.flatMap(({ text, start, end }) => {
    const words = splitWords(text)
    // One character more for the pause after each word.
    const weights = words.map((word) => word.length + 1)
    const total = weights.reduce((sum, weight) => sum + weight, 0)
    let passed = 0
    return words.map((word, index) => {
      const from = start + ((end - start) * passed) / total
      passed += weights[index] as number
      return {
        word,
        start: roundToHundredths(from),
        end: roundToHundredths(start + ((end - start) * passed) / total),
      }
    })
  })
}

/** Words by the segmentation rules of Unicode, also for languages without spaces. */
function splitWords(text: string): readonly string[] {
  return [...new Intl.Segmenter(undefined, { granularity: 'word' }).segment(text)]
    .filter(({ isWordLike }) => isWordLike === true)
    .map(({ segment }) => segment)
}
