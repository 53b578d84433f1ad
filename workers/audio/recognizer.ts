import type { AudioResult, SpokenToken, VoiceActivitySettings } from '#shared/contracts/audio.ts'
import { failure } from '#shared/errors.ts'
import type { TokenPieces } from '#workers/text/detokenizer.ts'

/** The task and language of a clip. */
export interface SpeechTask {
  readonly task: 'transcribe' | 'translate'
  /** ISO 639-1; null where none is given. */
  readonly language: string | null
}

/** The parameters of one clip. */
export interface SpeechRequest extends SpeechTask {
  /** The languages of which one is detected; ignored by models that know none of them. */
  readonly among?: readonly string[]
  readonly prompt: string
  readonly temperature: number
  /** Whether words get times; ignored by models that cannot time them. */
  readonly wordTimestamps: boolean
  /** Whether the log-probabilities of the tokens are returned. */
  readonly logprobs?: boolean
  /** How silence is detected and skipped; ignored without a model that detects speech. */
  readonly voiceActivity?: VoiceActivitySettings
}

/** The abort signal and the progress callback of a clip. */
export interface SpeechTools {
  readonly signal: AbortSignal
  /**
   * Called after each window with the processed samples, the samples known so far, and the text.
   */
  onWindow?(doneSamples: number, knownSamples: number, said: WindowText): void
}

/** The text of a window. */
export interface WindowText {
  readonly text: string
  /** The window's tokens, if they were requested. */
  readonly logprobs?: readonly SpokenToken[]
}

/** A loaded speech model; clips that run at the same time share batches. */
export interface Recognizer {
  /** Samples from one window to the next. */
  readonly windowSamples: number
  /** The graphs of the loaded model. */
  readonly modelFiles: readonly string[]
  /** Why the model cannot time words; absent when it can. */
  readonly noWordTimes?: string
  /** Throws `invalidRequest` for a task or language that the model does not support. */
  check(request: SpeechTask): void
  /** The fields of a request that have no effect with this model. */
  ignoredFields(request: SpeechRequest): readonly string[]
  /** Throws `audio_too_short`, and passes on errors thrown by the clip's decoder. */
  transcribe(
    clip: AsyncIterable<Float32Array>,
    request: SpeechRequest,
    tools: SpeechTools,
  ): Promise<AudioResult>
  close(): Promise<void>
}

/** Refuses requests that a transcription-only model does not support. */
export function checkTranscription({ task }: Pick<SpeechTask, 'task'>): void {
  if (task === 'transcribe') return
  throw failure.invalidRequest('This model only transcribes; it cannot translate.', {
    param: 'model',
  })
}

/** A token of a transcript; an incomplete character is shown as U+FFFD. */
export function spokenToken(pieces: TokenPieces, tokenId: number, logprob: number): SpokenToken {
  const bytes = pieces.bytesOf(tokenId)
  return { token: Buffer.from(bytes).toString('utf8'), bytes: [...bytes], logprob }
}
