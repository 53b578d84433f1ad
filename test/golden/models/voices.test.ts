import { afterAll, describe, expect, it } from 'vitest'

import { wordErrors, wordsOf } from '#test/integration/inference/word-errors.ts'
import { openWhisper } from '#workers/audio/whisper.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { openVoices } from '#workers/speech/open-voices.ts'

import { measuredScores, modelFolder, readEvals } from './shipped.ts'

/** A held-out sentence, as `python -m models.training.tiny_tts evaluate` spoke it. */
interface Spoken {
  readonly text: string
  readonly language: string
  readonly voice: string
  readonly ids: readonly number[]
  readonly frames: number
  /** The text that tiny-whisper recognized. */
  readonly recognized: string
}

const FRAME_SAMPLES = 200
const sentences = readEvals<readonly Spoken[]>('tiny-tts')
const { signal } = new AbortController()
const runtime = openRuntime()
const session = { intraOpThreads: 1 }
const voices = await openVoices({ runtime, folder: modelFolder('tiny-tts'), session })
const whisper = await openWhisper({ runtime, folder: modelFolder('tiny-whisper'), session })

afterAll(async () => {
  await voices.close()
  await whisper.close()
  await runtime.close()
})

async function speak(text: string, voice: string, speed = 1): Promise<Float32Array> {
  return voices.speak({ tokenIds: await voices.encode(text, voice), voice, speed }, signal)
}

async function recognize(wave: Float32Array, language: string): Promise<string> {
  const samples = (async function* () {
    yield wave
  })()
  const task = { task: 'transcribe', language, prompt: '', temperature: 0 } as const
  const { text } = await whisper.transcribe(samples, { ...task, wordTimestamps: false }, { signal })
  return text
}

describe('tiny-tts', { timeout: 180_000 }, () => {
  it('has two voices at 16 kHz, with a speed', () => {
    expect(voices).toMatchObject({ names: ['female', 'male'], sampleRate: 16_000, hasSpeed: true })
  })

  it('reads and speaks as onnxruntime did', async () => {
    for (const { text, voice, ids, frames } of sentences) {
      expect(await voices.encode(text, voice)).toEqual(ids)
      const wave = await speak(text, voice)
      // Rounding may add or take away a frame of a sentence.
      expect(Math.abs(wave.length / FRAME_SAMPLES - frames)).toBeLessThanOrEqual(2)
      expect(Math.max(...wave.map(Math.abs))).toBeLessThanOrEqual(1)
    }
  })

  it('is understood by tiny-whisper', async () => {
    let [errors, words] = [0, 0]
    for (const { text, language, voice } of sentences) {
      errors += wordErrors(await recognize(await speak(text, voice), language), text)
      words += wordsOf(text).length
    }
    expect(words).toBeGreaterThan(60)
    expect(errors / words).toBeLessThanOrEqual(0.15)
  })

  it('sounds the same each time, and different in the other voice', async () => {
    const text = 'The house is red.'
    const wave = await speak(text, 'female')
    expect(await speak(text, 'female')).toEqual(wave)
    expect(await speak(text, 'male')).not.toEqual(wave)
    expect(pitchOf(wave) / pitchOf(await speak(text, 'male'))).toBeGreaterThan(1.4)
  })

  it('speaks for half as long at twice the speed', async () => {
    const text = 'We wait ten hours in the forest.'
    const [plain, fast] = [await speak(text, 'male'), await speak(text, 'male', 2)]
    expect(plain.length / fast.length).toBeCloseTo(2, 1)
  })

  it('reaches the goals of its card', () => {
    const { distance, ...scores } = measuredScores('tiny-tts')
    expect(distance).toBeLessThanOrEqual(0.5)
    for (const language of ['en', 'de', 'es', 'fr']) {
      expect(scores[language]).toBeLessThanOrEqual(0.1)
    }
  })
})

/** Hertz: the lag at which the whole wave is most like itself. */
function pitchOf(wave: Float32Array): number {
  const likeness = (lag: number): number =>
    wave.subarray(lag).reduce((sum, sample, at) => sum + sample * (wave[at] as number), 0)
  const lags = Array.from({ length: 180 }, (_, index) => 50 + index)
  const best = lags.reduce((a, b) => (likeness(b) > likeness(a) ? b : a))
  return voices.sampleRate / best
}
