import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { SAMPLE_RATE } from '#workers/audio/decode.ts'
import { openMoonshine } from '#workers/audio/moonshine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { FIXTURES, samplesOf, transcribe } from './listening.ts'

// Recorded from transformers by test/fixtures/build-models.py.
interface Golden {
  readonly clips: readonly { file: string; text: string; tokens: number[]; logprobs: number[] }[]
}

const folder = join(FIXTURES, 'moonshine')
const golden: Golden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8'))
const runtime = openRuntime()
const recognizer = await openMoonshine({ runtime, folder })

afterAll(async () => {
  await recognizer.close()
  await runtime.close()
})

it.each(golden.clips)('writes the tokens of the reference for $file', async (clip) => {
  const { segments, text, logprobs } = await transcribe(recognizer, samplesOf(clip.file))
  expect(segments.flatMap(({ tokenIds }) => tokenIds)).toEqual(clip.tokens)
  expect(text).toBe(clip.text.trim())
  expect(defined(logprobs).map(({ logprob }) => logprob)).toEqual(
    clip.logprobs.map((value) => expect.closeTo(value, 2)),
  )
})

it('reads recordings of different lengths together as it reads each alone', async () => {
  const [long, other] = golden.clips.map(({ file }) => samplesOf(file)) as [
    Float32Array,
    Float32Array,
  ]
  const clips = [long, other, long.slice(0, 20_000), long.slice()]
  const together = await Promise.all(clips.map((clip) => transcribe(recognizer, clip)))
  for (const [index, clip] of clips.entries()) {
    const alone = await transcribe(recognizer, clip)
    const [found, expected] = [defined(together[index]), alone].map(({ segments }) => segments[0])
    expect(defined(found).tokenIds).toEqual(defined(expected).tokenIds)
    expect(defined(found).averageLogprob).toBeCloseTo(defined(expected).averageLogprob, 4)
  }
})

it('reads a long recording window by window, each as if it were alone', async () => {
  const samples = samplesOf('en-1.wav', 'de-1.wav')
  const short = await openMoonshine({ runtime, folder, windowSeconds: 2 })
  const { segments, durationSeconds } = await transcribe(short, samples)
  expect(segments.length).toBeGreaterThan(2)
  let end = 0
  for (const segment of segments) {
    expect(segment.start).toBe(end)
    end = segment.end
  }
  expect(end).toBeCloseTo(durationSeconds, 1)
  const cut = Math.round(defined(segments[0]).end * SAMPLE_RATE)
  const alone = await transcribe(recognizer, samples.slice(0, cut))
  expect(alone.text).toBe(defined(segments[0]).text.trim())
  await short.close()
})

it('follows the temperature, and names the fields without effect', async () => {
  const samples = samplesOf('en-1.wav')
  const [plain, hot] = await Promise.all(
    [0, 1].map((temperature) => transcribe(recognizer, samples, { temperature })),
  )
  expect(defined(hot).text).not.toBe(defined(plain).text)
  const request = { task: 'transcribe' as const, language: 'en', prompt: 'x', temperature: 1 }
  expect(recognizer.ignoredFields({ ...request, wordTimestamps: true })).toEqual([
    'prompt',
    'language',
    'timestamp_granularities[]',
  ])
  expect(() => recognizer.check({ task: 'translate', language: null })).toThrow('cannot translate')
})
