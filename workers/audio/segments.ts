/** The part of an answer between two timestamps, in seconds from the start of the window. */
interface TimedTokens {
  readonly start: number
  readonly end: number
  readonly tokenIds: readonly number[]
  /** Index of the first token in the answer. */
  readonly from: number
}

/** The segments of a window's answer, and the start of the next window. */
interface WindowCut {
  readonly segments: readonly TimedTokens[]
  readonly advanceSeconds: number
}

/** The timestamp unit and the length of the window. */
interface WindowTimes {
  readonly firstTimestamp: number
  readonly secondsPerTimestamp: number
  /** Seconds of sound in the window; less than the model's at the end of a clip. */
  readonly windowSeconds: number
}

// Guarantees progress when a model outputs 0.00 for every timestamp.
const ADVANCE_SECONDS_MIN = 1

/**
 * Cuts an answer at pairs of timestamps: the end of one segment and the start of the next (Radford
 * et al. 2022, section 4.5). Unfinished speech at the end is read again with the next window; a
 * single timestamp at the end means that no speech was cut off.
 */
export function cutWindow(answer: readonly number[], times: WindowTimes): WindowCut {
  const { firstTimestamp, secondsPerTimestamp, windowSeconds } = times
  const isTimestamp = (id: number | undefined) => id !== undefined && id >= firstTimestamp
  const secondsAt = (id: number) =>
    Math.min((id - firstTimestamp) * secondsPerTimestamp, windowSeconds)
  const cuts = answer.flatMap((id, i) =>
    i > 0 && isTimestamp(id) && isTimestamp(answer[i - 1]) ? [i] : [],
  )
  const endsWhole = isTimestamp(answer.at(-1)) && !isTimestamp(answer.at(-2))
  if (cuts.length === 0 || answer.every(isTimestamp)) {
    const whole = wholeSegment(answer, isTimestamp, secondsAt, windowSeconds)
    return { segments: keepReal([whole], isTimestamp), advanceSeconds: windowSeconds }
  }
  if (endsWhole) cuts.push(answer.length)
  const segments = cuts.map((cut, index) => {
    const from = cuts[index - 1] ?? 0
    const tokenIds = answer.slice(from, cut)
    return {
      start: secondsAt(tokenIds[0] as number),
      end: secondsAt(tokenIds.at(-1) as number),
      tokenIds,
      from,
    }
  })
  const lastEnd = segments.at(-1)?.end ?? windowSeconds
  return {
    segments: keepReal(segments, isTimestamp),
    advanceSeconds: endsWhole
      ? windowSeconds
      : Math.min(windowSeconds, Math.max(lastEnd, ADVANCE_SECONDS_MIN)),
  }
}

function wholeSegment(
  answer: readonly number[],
  isTimestamp: (id: number | undefined) => boolean,
  secondsAt: (id: number) => number,
  windowSeconds: number,
): TimedTokens {
  const lastIndex = answer.findLastIndex(isTimestamp)
  const start = isTimestamp(answer[0]) ? secondsAt(answer[0] as number) : 0
  const end = lastIndex > 0 ? secondsAt(answer[lastIndex] as number) : windowSeconds
  return { start, end: end > start ? end : windowSeconds, tokenIds: answer, from: 0 }
}

function keepReal(
  segments: readonly TimedTokens[],
  isTimestamp: (id: number) => boolean,
): readonly TimedTokens[] {
  return segments.filter(
    ({ start, end, tokenIds }) => end > start && !tokenIds.every((id) => isTimestamp(id)),
  )
}

// 10 ms at the sampling rate of all models.
const SEEK_FRAME_SAMPLES = 160

/** The frames of `seek` before a sample, for models without frames. */
export function seekFramesOf(samples: number): number {
  return Math.round(samples / SEEK_FRAME_SAMPLES)
}

/** Times are rounded to hundredths of a second. */
export function roundToHundredths(seconds: number): number {
  return Math.round(seconds * 100) / 100
}
