import type { AudioWord } from '#shared/contracts/audio.ts'

import { roundToHundredths } from './segments.ts'
import type { WordTokens } from './words.ts'

/** A word with its times in the clip, in seconds. */
interface TimedWord extends WordTokens {
  readonly start: number
  readonly end: number
}

/** A segment of speech: its times, and the words in it. */
interface TimedSegment {
  readonly start: number
  readonly end: number
  readonly textTokens: number
}

type Draft = { -readonly [Field in 'text' | 'start' | 'end']: TimedWord[Field] } & {
  numTokens: number
}

// The constants and rules below are those of openai/whisper, timing.py: cross-attention is vague in
// pauses, so a word beside a pause seems longer than it is.
const MEDIAN_SECONDS_MAX = 0.7
const PAUSE_MEDIANS_MIN = 4
const SEGMENT_TOLERANCE_SECONDS = 0.5
const SENTENCE_ENDS = '.。!！?？'
const PREPENDED = '"\'“¿([{-'
const APPENDED = '"\'.。,，!！?？:：”)]}、'

/**
 * The words of one window. Words at the ends of sentences and segments are shortened; punctuation
 * counts as part of its word but is not in the text. `lastEnd` is the end of the speech so far.
 */
export function presentWords(
  timed: readonly TimedWord[],
  segments: readonly TimedSegment[],
  lastEnd: number,
): { readonly words: readonly AudioWord[]; readonly lastEnd: number } {
  const drafts: Draft[] = timed.map(({ text, tokenIds, start, end }) => {
    return { text, start, end, numTokens: tokenIds.length }
  })
  const median = Math.min(MEDIAN_SECONDS_MAX, medianDuration(drafts))
  if (median > 0) shortenAtSentenceEnds(drafts, 2 * median)
  joinPunctuation(drafts)
  const words: Draft[] = []
  let speechEnd = lastEnd
  let next = 0
  for (const segment of segments) {
    const own: Draft[] = []
    for (let numTokens = 0; next < drafts.length && numTokens < segment.textTokens; next++) {
      const draft = drafts[next] as Draft
      numTokens += draft.numTokens
      if (draft.text !== '') own.push(draft)
    }
    if (own.length > 0) speechEnd = fitToSegment(own, segment, { median, lastEnd: speechEnd })
    words.push(...own)
  }
  return { words: words.flatMap(presentWord), lastEnd: speechEnd }
}

function medianDuration(drafts: readonly Draft[]): number {
  const durations = drafts
    .map(({ start, end }) => end - start)
    .filter((seconds) => seconds > 0)
    .sort((a, b) => a - b)
  const half = Math.floor(durations.length / 2)
  const upper = durations[half] ?? 0
  return durations.length % 2 === 1 ? upper : (upper + (durations[half - 1] ?? 0)) / 2
}

function shortenAtSentenceEnds(drafts: readonly Draft[], secondsMax: number): void {
  for (const [index, word] of drafts.entries()) {
    const before = drafts[index - 1]
    if (before === undefined || word.end - word.start <= secondsMax) continue
    if (SENTENCE_ENDS.includes(word.text)) word.end = word.start + secondsMax
    else if (SENTENCE_ENDS.includes(before.text)) word.start = word.end - secondsMax
  }
}

/** Moves the text of punctuation to its word, which keeps its own times. */
function joinPunctuation(drafts: readonly Draft[]): void {
  let following = drafts.at(-1)
  for (const draft of drafts.slice(0, -1).reverse()) {
    if (draft.text.startsWith(' ') && PREPENDED.includes(draft.text.trim())) {
      move(draft, following as Draft, (own, other) => own + other)
    } else {
      following = draft
    }
  }
  let previous = drafts[0]
  for (const draft of drafts.slice(1)) {
    if (previous?.text.endsWith(' ') === false && APPENDED.includes(draft.text)) {
      move(draft, previous, (own, other) => other + own)
    } else {
      previous = draft
    }
  }
}

function move(from: Draft, to: Draft, join: (own: string, other: string) => string): void {
  to.text = join(from.text, to.text)
  to.numTokens += from.numTokens
  from.text = ''
  from.numTokens = 0
}

/** Shortens the first words after a pause and the last word; returns the end of the speech. */
function fitToSegment(
  words: readonly Draft[],
  { start, end }: TimedSegment,
  { median, lastEnd }: { readonly median: number; readonly lastEnd: number },
): number {
  const [first, second] = words as [Draft, Draft?]
  const last = words.at(-1) as Draft
  const secondsMax = 2 * median
  for (const word of words) {
    word.start = roundToHundredths(word.start)
    word.end = roundToHundredths(word.end)
  }
  const isLong =
    first.end - first.start > secondsMax ||
    (second !== undefined && second.end - first.start > 2 * secondsMax)
  if (first.end - lastEnd > PAUSE_MEDIANS_MIN * median && isLong) {
    if (second !== undefined && second.end - second.start > secondsMax) {
      const boundary = Math.max(second.end / 2, second.end - secondsMax)
      first.end = boundary
      second.start = boundary
    }
    first.start = Math.max(0, first.end - secondsMax)
  }
  if (start < first.end && start - SEGMENT_TOLERANCE_SECONDS > first.start) {
    first.start = Math.max(0, Math.min(first.end - median, start))
  }
  if (end > last.start && end + SEGMENT_TOLERANCE_SECONDS < last.end) {
    last.end = Math.max(last.start + median, end)
    return end
  }
  return last.end
}

/** Words have no punctuation around them, as in OpenAI's API. */
function presentWord({ text, start, end }: Draft): AudioWord[] {
  const word = text.replace(/^[\s\p{P}]+|[\s\p{P}]+$/gu, '')
  if (word === '') return []
  return [{ word, start: roundToHundredths(start), end: roundToHundredths(end) }]
}
