import { deflateSync } from 'node:zlib'

import type { Answer, AnswerDecoder, AnswerRequest } from './answer-decoder.ts'

/** The chosen answer of a window, with its quality measures. */
export interface WindowAnswer extends Answer {
  readonly temperature: number
  readonly compressionRatio: number
  readonly isSilence: boolean
  /** There is no text although the model detects speech. */
  readonly isLost: boolean
}

// Radford et al. 2022, section 4.5: retry at rising temperatures when the text repeats itself or
// its probability is low; a window is silent when the model detects no speech and the probability
// is low.
const TEMPERATURES = [0, 0.2, 0.4, 0.6, 0.8, 1]
const COMPRESSION_RATIO_MAX = 2.4
const AVERAGE_LOGPROB_MIN = -1
const NO_SPEECH_PROBABILITY_MIN = 0.6

/** Decodes a window: at temperature 0 with fallbacks, at any other temperature once. */
export async function answerWindow(
  decoder: AnswerDecoder,
  request: AnswerRequest & { readonly textOf: (tokenIds: readonly number[]) => string },
  signal: AbortSignal,
): Promise<WindowAnswer> {
  const temperatures = request.temperature === 0 ? TEMPERATURES : [request.temperature]
  let kept: WindowAnswer | undefined
  for (const temperature of temperatures) {
    const answer = await decoder.decode({ ...request, temperature }, signal)
    const doubts = answer.averageLogprob < AVERAGE_LOGPROB_MIN
    const text = request.textOf(answer.tokenIds)
    const hasNoSpeech = answer.probed > NO_SPEECH_PROBABILITY_MIN
    kept = {
      ...answer,
      temperature,
      compressionRatio: compressionRatioOf(text),
      isSilence: doubts && hasNoSpeech,
      isLost: text.trim() === '' && !hasNoSpeech,
    }
    if (kept.isSilence) break
    if (!doubts && kept.compressionRatio <= COMPRESSION_RATIO_MAX) break
  }
  return kept as WindowAnswer
}

/** The zlib compression ratio of a text; repetitions make it high. */
export function compressionRatioOf(text: string): number {
  const bytes = Buffer.from(text)
  return bytes.length === 0 ? 0 : bytes.length / deflateSync(bytes).length
}
