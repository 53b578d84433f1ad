/** One clip in object storage to transcribe in its language or translate into English. */
export interface AudioInput {
  readonly task: 'transcribe' | 'translate'
  readonly audioKey: string
  /** The uploaded file name; helps the decoder with formats that have no signature. */
  readonly filename: string
  /** ISO 639-1; null detects the language. */
  readonly language: string | null
  readonly prompt: string
  readonly temperature: number
  readonly wordTimestamps: boolean
  /** Whether the text of each window is sent as soon as it is recognized. */
  readonly stream?: boolean
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

/** The recognized text. */
export interface AudioResult {
  readonly text: string
  /** ISO 639-1. */
  readonly language: string
  readonly durationSeconds: number
  readonly segments: readonly AudioSegment[]
  readonly words?: readonly AudioWord[]
}
