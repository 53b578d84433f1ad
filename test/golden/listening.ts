import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import type { AudioResult } from '#shared/contracts/audio.ts'
import type { Recognizer, SpeechRequest } from '#workers/audio/recognizer.ts'

/** Tiny models with random weights. */
export const FIXTURES = join(import.meta.dirname, '../fixtures/models')
const CLIPS = join(import.meta.dirname, '../fixtures/audio')
const WAV_HEADER_BYTES = 44
// No divisor of a window.
const PIECE_SAMPLES = 7001

const REQUEST: SpeechRequest = {
  task: 'transcribe',
  language: null,
  prompt: '',
  temperature: 0,
  wordTimestamps: true,
  logprobs: true,
}

/** The samples of committed recordings, one after the other. */
export function samplesOf(...names: readonly string[]): Float32Array {
  const values = names.flatMap((name) => {
    const wav = readFileSync(join(CLIPS, name)).subarray(WAV_HEADER_BYTES)
    return Array.from({ length: wav.length / 2 }, (_, at) => wav.readInt16LE(2 * at) / 32768)
  })
  return Float32Array.from(values)
}

/** Transcribes samples that arrive in pieces. */
export function transcribe(
  recognizer: Recognizer,
  samples: Float32Array,
  change: Partial<SpeechRequest> = {},
  onWindow?: (text: string) => void,
): Promise<AudioResult> {
  return recognizer.transcribe(
    piecesOf(samples),
    { ...REQUEST, ...change },
    {
      signal: new AbortController().signal,
      onWindow: (_done, _known, { text }) => onWindow?.(text),
    },
  )
}

/** The pieces in which a decoder passes samples on. */
export async function* piecesOf(samples: Float32Array): AsyncGenerator<Float32Array> {
  for (let at = 0; at < samples.length; at += PIECE_SAMPLES) {
    yield samples.slice(at, at + PIECE_SAMPLES)
  }
}
