/** One clip in object storage to transcribe in its language or translate into English. */
export interface AudioInput {
  readonly task: 'transcribe' | 'translate'
  readonly audioKey: string
  /** The uploaded file name; helps the decoder with formats that have no signature. */
  readonly filename: string
  /** ISO 639-1; null detects the language. */
  readonly language: string | null
  /** The languages of which one is detected; all of the model if absent. */
  readonly among?: readonly string[]
  readonly prompt: string
  readonly temperature: number
  /** Ignored by models that cannot time words. */
  readonly wordTimestamps: boolean
  /** Whether the log-probabilities of the tokens are returned. */
  readonly logprobs?: boolean
  /** Whether the text of each window is sent as soon as it is recognized. */
  readonly stream?: boolean
  /** How silence is detected and skipped; when absent, the whole clip is read. */
  readonly voiceActivity?: VoiceActivitySettings
}

/** When speech begins and ends. */
export interface VoiceActivitySettings {
  /** A frame is speech from this probability on. */
  readonly threshold: number
  /** Sound that is kept before speech. */
  readonly prefixPaddingMs: number
  /** The silence that ends speech. */
  readonly silenceDurationMs: number
}

/** A segment of speech; times in seconds from the start of the clip. */
export interface AudioSegment {
  readonly seekFrames: number
  readonly start: number
  readonly end: number
  readonly text: string
  readonly tokenIds: readonly number[]
  readonly temperature: number
  readonly averageLogprob: number
  readonly compressionRatio: number
  readonly noSpeechProbability: number
}

/** A word with its time in the clip, in seconds. */
export interface AudioWord {
  readonly word: string
  readonly start: number
  readonly end: number
}

/** A token of the text with its log-probability. */
export interface SpokenToken {
  readonly token: string
  /** UTF-8 bytes; a token may hold only a part of a character. */
  readonly bytes: readonly number[]
  readonly logprob: number
}

/** The recognized text. */
export interface AudioResult {
  readonly text: string
  /** ISO 639-1; null where the model detects no language and the request names none. */
  readonly language: string | null
  readonly durationSeconds: number
  readonly segments: readonly AudioSegment[]
  /** Present when the request asks for word times and the model supports them. */
  readonly words?: readonly AudioWord[]
  /** Present when the request asks for them. */
  readonly logprobs?: readonly SpokenToken[]
}
