import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import type { VoiceActivitySettings } from '#shared/contracts/audio.ts'
import { defined } from '#shared/json.ts'
import { SAMPLE_RATE } from '#workers/audio/decode.ts'
import { openRecognizer } from '#workers/audio/open-recognizer.ts'
import { skipSilence } from '#workers/audio/skip-silence.ts'
import { FRAME_SAMPLES, openVoiceActivity } from '#workers/audio/voice-activity.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { FIXTURES, piecesOf, samplesOf, transcribe } from './listening.ts'

// Recorded by test/fixtures/build-models.py.
interface Golden {
  /** Seconds before, between and behind the files. */
  readonly silences: number[]
  readonly files: string[]
  readonly probabilities: number[]
  readonly cases: readonly (VoiceActivitySettings & { stretches: [number, number][] })[]
}

const folder = join(FIXTURES, 'voice-activity')
const golden: Golden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8'))
const signal = new AbortController().signal
const runtime = openRuntime()
const model = await openVoiceActivity(runtime, folder)
const samples = recording()

afterAll(async () => {
  await model.close()
  await runtime.close()
})

function recording(): Float32Array {
  const parts = golden.silences.flatMap((seconds, index) => {
    const file = golden.files[index]
    const silence = new Float32Array(seconds * SAMPLE_RATE)
    return file === undefined ? [silence] : [silence, samplesOf(file)]
  })
  return joined(parts)
}

function joined(parts: readonly Float32Array[]): Float32Array {
  const whole = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

it('gives each frame the probability of the reference', async () => {
  const activity = model.begin()
  for (const [index, expected] of golden.probabilities.entries()) {
    const frame = samples.subarray(index * FRAME_SAMPLES, (index + 1) * FRAME_SAMPLES)
    expect(await activity.probabilityOf(frame, signal)).toBeCloseTo(expected, 4)
  }
  activity.dispose()
})

it.each(golden.cases)(
  'passes on the stretches of the reference: $threshold, $prefixPaddingMs, $silenceDurationMs',
  async ({ stretches, ...settings }) => {
    expect(stretches.length).toBeGreaterThan(1)
    const speech = skipSilence(piecesOf(samples), model.begin(), { settings, signal })
    const passed = joined(await Array.fromAsync(speech.samples))
    expect(passed).toEqual(joined(stretches.map(([start, end]) => samples.slice(start, end))))
    expect(speech.recordedSamples).toBe(samples.length)
    let at = 0
    for (const [start, end] of stretches) {
      expect(speech.restore(at / SAMPLE_RATE, 'start')).toBeCloseTo(start / SAMPLE_RATE, 6)
      at += end - start
      expect(speech.restore(at / SAMPLE_RATE, 'end')).toBeCloseTo(end / SAMPLE_RATE, 6)
    }
  },
)

describe('a model that listens', async () => {
  const [settings] = golden.cases as [VoiceActivitySettings & { stretches: [number, number][] }]
  const open = { runtime, folder: join(FIXTURES, 'hubert') }
  const [recognizer, plain] = await Promise.all([
    openRecognizer({ ...open, activityFolder: folder }),
    openRecognizer(open),
  ])

  it('reads only the stretches with speech and answers times of the recording', async () => {
    const result = await transcribe(recognizer, samples, { voiceActivity: settings })
    const stretches = settings.stretches.map(([start, end]) => samples.slice(start, end))
    const alone = await transcribe(plain, joined(stretches))
    expect(result.text).toBe(alone.text)
    expect(result.durationSeconds).toBe(samples.length / SAMPLE_RATE)
    const words = defined(result.words)
    expect(words.length).toBe(defined(alone.words).length)
    for (const { start, end } of [...words, ...result.segments]) {
      const isIn = (seconds: number) =>
        settings.stretches.some(([from, to]) => {
          return seconds >= from / SAMPLE_RATE - 0.02 && seconds <= to / SAMPLE_RATE + 0.02
        })
      expect([isIn(start), isIn(end)]).toEqual([true, true])
    }
    expect(words.at(-1)?.end).toBeGreaterThan(defined(alone.words?.at(-1)).end + 2)
  })

  it('answers silence with no text', async () => {
    const silence = new Float32Array(3 * SAMPLE_RATE)
    expect(await transcribe(recognizer, silence, { voiceActivity: settings })).toEqual({
      text: '',
      language: null,
      durationSeconds: 3,
      segments: [],
      words: [],
      logprobs: [],
    })
    const nothing = transcribe(recognizer, silence.slice(0, 400), { voiceActivity: settings })
    await expect(nothing).rejects.toMatchObject({ code: 'audio_too_short' })
  })

  it('reports the settings as ignored without a model that finds speech', () => {
    const request = {
      task: 'transcribe' as const,
      language: null,
      prompt: '',
      temperature: 0,
      wordTimestamps: false,
      voiceActivity: settings,
    }
    expect(plain.ignoredFields(request)).toEqual(['chunking_strategy'])
    expect(recognizer.ignoredFields(request)).toEqual([])
  })
})
