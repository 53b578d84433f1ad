/** How speech is encoded; `pcm` is 16-bit little-endian at 24 kHz without a header. */
export const SPEECH_FORMATS = ['mp3', 'opus', 'aac', 'flac', 'wav', 'pcm'] as const

export type SpeechFormat = (typeof SPEECH_FORMATS)[number]

/** A text to speak. */
export interface SpeechInput {
  readonly task: 'speak'
  readonly text: string
  readonly voice: string
  /** 1 is the voice's own speed. */
  readonly speed: number
  /** Null lets the worker choose: `mp3` where it can encode it, else `wav`. */
  readonly format: SpeechFormat | null
}

/** A part of the encoded speech. */
export interface SpeechAudio {
  /**
   * The number of bytes before this part, because a run that replaces a lost one sends them again.
   */
  readonly offset: number
  /** Base64. */
  readonly data: string
}

/** The end of a speech, whose bytes were sent before. */
export interface SpeechResult {
  readonly durationSeconds: number
}
