import type { AudioResult } from '#shared/contracts/audio.ts'

import { SAMPLE_RATE } from './decode.ts'
import { SECONDS_MIN, tooShort } from './read-windows.ts'
import type { Recognizer, SpeechRequest } from './recognizer.ts'
import { roundToHundredths } from './segments.ts'
import { type Speech, skipSilence } from './skip-silence.ts'
import type { VoiceActivityModel } from './voice-activity.ts'

/**
 * A recognizer that skips silence if a request asks for it. Without a model that detects speech, it
 * reports the field as ignored.
 */
export function withVoiceActivity(
  recognizer: Recognizer,
  activity: VoiceActivityModel | undefined,
): Recognizer {
  return {
    ...recognizer,
    modelFiles: [...recognizer.modelFiles, ...(activity === undefined ? [] : [activity.modelFile])],
    ignoredFields: (request) => [
      ...recognizer.ignoredFields(request),
      ...(request.voiceActivity !== undefined && activity === undefined
        ? ['chunking_strategy']
        : []),
    ],
    async transcribe(clip, request, tools) {
      const { voiceActivity: settings } = request
      if (activity === undefined || settings === undefined) {
        return recognizer.transcribe(clip, request, tools)
      }
      const { signal } = tools
      const speech = skipSilence(clip, activity.begin(), { settings, signal })
      const first = await speech.samples.next()
      if (first.done === true) return silence(speech, request)
      const rest = joined(first.value, speech.samples)
      return restore(await recognizer.transcribe(rest, request, tools), speech)
    },
    async close() {
      await Promise.all([recognizer.close(), activity?.close()])
    },
  }
}

async function* joined(
  first: Float32Array,
  rest: AsyncGenerator<Float32Array>,
): AsyncGenerator<Float32Array> {
  try {
    yield first
    yield* rest
  } finally {
    await rest.return(undefined)
  }
}

/** The answer to a recording without speech. */
function silence(
  { recordedSamples }: Speech,
  { language, logprobs, wordTimestamps }: SpeechRequest,
): AudioResult {
  const durationSeconds = recordedSamples / SAMPLE_RATE
  if (durationSeconds < SECONDS_MIN) throw tooShort()
  return {
    text: '',
    language,
    durationSeconds,
    segments: [],
    ...(wordTimestamps && { words: [] }),
    ...(logprobs === true && { logprobs: [] }),
  }
}

/** Converts the times of a transcript from the passed stretches to the recording. */
function restore(result: AudioResult, speech: Speech): AudioResult {
  const restored = <Timed extends { readonly start: number; readonly end: number }>(
    timed: Timed,
  ) => ({
    ...timed,
    start: roundToHundredths(speech.restore(timed.start, 'start')),
    end: roundToHundredths(speech.restore(timed.end, 'end')),
  })
  return {
    ...result,
    durationSeconds: speech.recordedSamples / SAMPLE_RATE,
    segments: result.segments.map(restored),
    ...(result.words !== undefined && { words: result.words.map(restored) }),
  }
}
