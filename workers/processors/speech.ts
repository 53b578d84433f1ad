import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { SpeechFormat, SpeechInput } from '#shared/contracts/speech.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { SpeechEncoder } from '#workers/speech/encode-speech.ts'
import { splitSentences } from '#workers/speech/sentences.ts'
import type { Utterance, Voices } from '#workers/speech/voices.ts'

import { type JobTools, yieldToEventLoop } from './processor-row.ts'

/** A loaded model of speech queues. */
export interface SpeechQueueModel {
  readonly voices: Voices
  readonly encoder: SpeechEncoder
}

// Clients of this API send these names to every model.
const USUAL_VOICES = [
  ...['alloy', 'ash', 'ballad', 'cedar', 'coral', 'echo', 'fable'],
  ...['marin', 'nova', 'onyx', 'sage', 'shimmer', 'verse'],
]
/** The most bytes of one reply. */
const PART_BYTES_MAX = 64 * 1024
/** Silence between two sentences. */
const PAUSE_SECONDS = 0.2

/** Speaks a text sentence by sentence; bytes are sent as soon as they are encoded. */
export async function processSpeech(
  job: JobEnvelope<'speech'>,
  { model, reply, signal, clock }: JobTools<SpeechQueueModel, 'speech'>,
): Promise<void> {
  const { input } = job
  const { voices, encoder } = model
  const begunMs = clock.now()
  const format = chooseFormat(encoder, input.format)
  const share = yieldToEventLoop(clock)
  const utterances = await utterancesOf(voices, input, share)
  const promptTokens = utterances.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0)
  reply.started(promptTokens, { speechFormat: format })
  const preparedMs = clock.now()
  const { sampleRate } = voices
  const spoken = { sentences: 0, samples: 0 }
  async function* samples(): AsyncGenerator<Float32Array> {
    for (const utterance of utterances) {
      if (spoken.sentences > 0) yield new Float32Array(Math.round(PAUSE_SECONDS * sampleRate))
      const wave = await voices.speak(utterance, signal)
      spoken.sentences += 1
      spoken.samples += wave.length
      // The encoder computes a second of speech at a time; a slow sentence has a minute.
      for (let at = 0; at < wave.length; at += sampleRate) {
        await share()
        yield wave.subarray(at, at + sampleRate)
      }
    }
  }
  let offset = 0
  for await (const bytes of encoder.encode({ samples: samples(), sampleRate, format, signal })) {
    for (let at = 0; at < bytes.length; at += PART_BYTES_MAX) {
      const part = bytes.subarray(at, at + PART_BYTES_MAX)
      const audio = { offset, data: part.toString('base64') }
      reply.progress(spoken.sentences, utterances.length, { audio })
      offset += part.length
    }
  }
  reply.result(
    { durationSeconds: spoken.samples / sampleRate },
    { promptTokens, completionTokens: 0, cachedTokens: 0 },
    {
      queueMs: begunMs - job.enqueuedAtMs,
      prepareMs: preparedMs - begunMs,
      runMs: clock.now() - preparedMs,
    },
  )
}

async function utterancesOf(
  voices: Voices,
  { text, voice: wanted, speed }: SpeechInput,
  share: () => Promise<void>,
): Promise<readonly Utterance[]> {
  const voice = chooseVoice(voices.names, wanted)
  if (speed !== 1 && !voices.hasSpeed) {
    throw invalid('speed', 'this model has one speed; leave it out or send 1.')
  }
  const utterances: Utterance[] = []
  for (const sentence of splitSentences(text)) {
    await share()
    const tokenIds = await voices.encode(sentence, voice)
    if (tokenIds.length > 0) utterances.push({ tokenIds, voice, speed })
  }
  if (utterances.length > 0) return utterances
  throw invalid('input', 'it contains nothing that this voice can speak.')
}

/** A voice of the model; the API's usual names are distributed among its voices. */
function chooseVoice(names: readonly string[], wanted: string): string {
  if (names.includes(wanted)) return wanted
  const usual = USUAL_VOICES.indexOf(wanted)
  const chosen = usual < 0 ? undefined : names[usual % names.length]
  if (chosen !== undefined) return chosen
  throw invalid('voice', `this model has ${names.slice(0, 100).join(', ')}.`)
}

function chooseFormat({ formats }: SpeechEncoder, wanted: SpeechFormat | null): SpeechFormat {
  if (wanted === null) return formats.includes('mp3') ? 'mp3' : 'wav'
  if (formats.includes(wanted)) return wanted
  throw invalid(
    'response_format',
    `${wanted} needs FFmpeg on the workers' PATH; this server encodes ${formats.join(', ')}.`,
  )
}

function invalid(param: string, reason: string): ServiceError {
  return failure.invalidRequest(`Invalid value for '${param}': ${reason}`, {
    param,
    code: 'invalid_value',
  })
}
