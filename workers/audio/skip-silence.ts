import type { VoiceActivitySettings } from '#shared/contracts/audio.ts'

import { SAMPLE_RATE } from './decode.ts'
import { FRAME_SAMPLES, type VoiceActivity } from './voice-activity.ts'

/** A recording without its silence. */
export interface Speech {
  /** Its samples, stretch by stretch; the settings bound the memory. */
  readonly samples: AsyncGenerator<Float32Array>
  /** Samples of the whole recording so far. */
  readonly recordedSamples: number
  /** Converts a time in the passed stretches to the time in the whole recording, in seconds. */
  restore(seconds: number, edge: 'start' | 'end'): number
}

/** A stretch of speech: its first sample among those passed on, and in the recording. */
interface Stretch {
  readonly at: number
  readonly recordedAt: number
}

// The rules of Silero's package: speech ends below a lower threshold than it starts at, and shorter
// speech than this is noise.
const THRESHOLD_GAP = 0.15
const THRESHOLD_MIN = 0.01
const SPEECH_SECONDS_MIN = 0.25
// Times are rounded, so an end may be after the end of its stretch.
const TOLERANCE_SECONDS = 0.01

/** Passes on speech, from the padding before it to the end of the silence after it. */
export function skipSilence(
  clip: AsyncIterable<Float32Array>,
  activity: VoiceActivity,
  options: { readonly settings: VoiceActivitySettings; readonly signal: AbortSignal },
): Speech {
  const stretches: Stretch[] = []
  let passed = 0
  let recorded = 0
  async function* listen(): AsyncGenerator<Float32Array> {
    const gate = new SpeechGate(options.settings)
    try {
      for await (const frame of framesOf(clip)) {
        recorded += frame.length
        yield* pass(gate.push(frame, await activity.probabilityOf(frame, options.signal)))
      }
      yield* pass(gate.end())
    } finally {
      activity.dispose()
    }
  }
  function* pass({ samples, beginsAt }: Passed): Generator<Float32Array> {
    if (beginsAt !== undefined) stretches.push({ at: passed, recordedAt: beginsAt })
    for (const part of samples) {
      passed += part.length
      yield part
    }
  }
  return {
    samples: listen(),
    get recordedSamples() {
      return recorded
    },
    restore: (seconds, edge) => restoreTime(stretches, seconds, edge),
  }
}

/** Full-length frames; the last one may be shorter. */
async function* framesOf(clip: AsyncIterable<Float32Array>): AsyncGenerator<Float32Array> {
  let rest = new Float32Array(0)
  for await (const piece of clip) {
    const joined = new Float32Array(rest.length + piece.length)
    joined.set(rest)
    joined.set(piece, rest.length)
    let at = 0
    for (; at + FRAME_SAMPLES <= joined.length; at += FRAME_SAMPLES) {
      yield joined.subarray(at, at + FRAME_SAMPLES)
    }
    rest = joined.slice(at)
  }
  if (rest.length > 0) yield rest
}

interface Passed {
  readonly samples: readonly Float32Array[]
  /** The position in the recording at which a stretch with these samples begins. */
  readonly beginsAt?: number
}

/** Decides frame by frame where speech starts and ends; independent of the model. */
class SpeechGate {
  readonly #settings: VoiceActivitySettings
  readonly #paddingSamples: number
  /** Frames that may still be passed on: padding, and speech that is too short so far. */
  #held: Float32Array[] = []
  #heldSamples = 0
  #at = 0
  #speechAt: number | undefined
  #silenceAt: number | undefined
  #isOpen = false

  constructor(settings: VoiceActivitySettings) {
    this.#settings = settings
    this.#paddingSamples = samplesIn(settings.prefixPaddingMs)
  }

  push(frame: Float32Array, probability: number): Passed {
    const at = this.#at
    this.#at += frame.length
    this.#judge(at, probability)
    if (this.#isOpen) return { samples: [frame] }
    this.#held.push(frame)
    this.#heldSamples += frame.length
    if (this.#speechAt === undefined) {
      this.#dropBefore(this.#at - this.#paddingSamples)
      return { samples: [] }
    }
    return this.#silenceAt === undefined ? this.#open(this.#speechAt) : { samples: [] }
  }

  /** Returns the held frames at the end of the recording. */
  end(): Passed {
    const isHeld = this.#speechAt !== undefined && !this.#isOpen
    return isHeld ? this.#open(this.#speechAt as number) : { samples: [] }
  }

  #judge(at: number, probability: number): void {
    const { threshold, silenceDurationMs } = this.#settings
    if (probability >= threshold) {
      this.#silenceAt = undefined
      this.#speechAt ??= at
    } else if (probability < Math.max(threshold - THRESHOLD_GAP, THRESHOLD_MIN)) {
      if (this.#speechAt === undefined) return
      this.#silenceAt ??= at
      if (at - this.#silenceAt < samplesIn(silenceDurationMs)) return
      this.#speechAt = undefined
      this.#silenceAt = undefined
      this.#isOpen = false
    }
  }

  /** Passes on the held frames once there is enough speech. */
  #open(speechAt: number): Passed {
    if (this.#at - speechAt <= SPEECH_SECONDS_MIN * SAMPLE_RATE) return { samples: [] }
    this.#dropBefore(speechAt - this.#paddingSamples)
    const samples = this.#held
    const beginsAt = this.#at - this.#heldSamples
    this.#held = []
    this.#heldSamples = 0
    this.#isOpen = true
    return { samples, beginsAt }
  }

  #dropBefore(start: number): void {
    let excess = start - (this.#at - this.#heldSamples)
    while (excess > 0) {
      const [first] = this.#held
      if (first === undefined) return
      const dropped = Math.min(excess, first.length)
      if (dropped === first.length) this.#held.shift()
      else this.#held[0] = first.subarray(dropped)
      this.#heldSamples -= dropped
      excess -= dropped
    }
  }
}

function samplesIn(milliseconds: number): number {
  return (milliseconds * SAMPLE_RATE) / 1000
}

function restoreTime(
  stretches: readonly Stretch[],
  seconds: number,
  edge: 'start' | 'end',
): number {
  const shift = edge === 'start' ? TOLERANCE_SECONDS : -TOLERANCE_SECONDS
  const limit = (seconds + shift) * SAMPLE_RATE
  // Binary search for the last stretch that begins before.
  let [low, high] = [0, stretches.length]
  while (low + 1 < high) {
    const middle = (low + high) >> 1
    if ((stretches[middle] as Stretch).at <= limit) low = middle
    else high = middle
  }
  const stretch = stretches[low]
  if (stretch === undefined) return seconds
  return seconds + (stretch.recordedAt - stretch.at) / SAMPLE_RATE
}
