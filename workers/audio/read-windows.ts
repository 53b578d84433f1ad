import type { AudioResult, AudioSegment, AudioWord, SpokenToken } from '#shared/contracts/audio.ts'
import { CancelledError, failure, type ServiceError } from '#shared/errors.ts'

import { SAMPLE_RATE } from './decode.ts'
import type { SpeechTools } from './recognizer.ts'
import { SampleReader } from './sample-reader.ts'

/** The recognized parts of one window. */
interface WindowResult {
  readonly segments: readonly AudioSegment[]
  /** Present if they were requested and the model supports word times. */
  readonly words?: readonly AudioWord[]
  /** Present if they were requested. */
  readonly logprobs?: readonly SpokenToken[]
  /** Samples from the start of this window to that of the next. */
  readonly advance: number
}

/** The parameters of reading a clip window by window. */
interface WindowReading extends SpeechTools {
  readonly windowSamples: number
  /** Recognizes the window that starts at the sample `seek`; the last one is shorter. */
  recognize(samples: Float32Array, seek: number): Promise<WindowResult>
}

/** Shorter recordings are refused. */
export const SECONDS_MIN = 0.1

/** Reads a clip window by window. Throws `audio_too_short`. */
export async function readWindows(
  clip: AsyncIterable<Float32Array>,
  { windowSamples, recognize, signal, onWindow }: WindowReading,
): Promise<Omit<AudioResult, 'language'>> {
  const reader = new SampleReader(clip)
  const found: WindowResult[] = []
  try {
    for (let seek = 0; ; ) {
      const samples = await reader.read(seek, windowSamples)
      if (signal.aborted) throw new CancelledError()
      if (samples.length < SECONDS_MIN * SAMPLE_RATE) {
        if (seek === 0) throw tooShort()
        break
      }
      const result = await recognize(samples, seek)
      found.push(result)
      seek += result.advance
      const { logprobs } = result
      onWindow?.(seek, Math.max(seek, reader.decodedSamples), {
        text: joinText(result.segments),
        ...(logprobs !== undefined && { logprobs }),
      })
    }
    return { ...join(found), durationSeconds: reader.decodedSamples / SAMPLE_RATE }
  } finally {
    await reader.close()
  }
}

function join(found: readonly WindowResult[]): Omit<AudioResult, 'language' | 'durationSeconds'> {
  const segments = found.flatMap((window) => window.segments)
  const hasWords = found.some(({ words }) => words !== undefined)
  const hasLogprobs = found.some(({ logprobs }) => logprobs !== undefined)
  return {
    text: joinText(segments).trim(),
    segments,
    ...(hasWords && { words: found.flatMap(({ words = [] }) => words) }),
    ...(hasLogprobs && { logprobs: found.flatMap(({ logprobs = [] }) => logprobs) }),
  }
}

function joinText(segments: readonly AudioSegment[]): string {
  return segments.map(({ text }) => text).join('')
}

/** The refusal of a recording that is too short. */
export function tooShort(): ServiceError {
  return failure.invalidRequest(
    `Audio file is too short. Minimum audio length is ${SECONDS_MIN} seconds.`,
    { param: 'file', code: 'audio_too_short' },
  )
}
