import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import type { AudioWord } from '#shared/contracts/audio.ts'
import { defined } from '#shared/json.ts'
import { openCtc } from '#workers/audio/ctc.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { FIXTURES, samplesOf, transcribe } from './listening.ts'

// Recorded from transformers by test/fixtures/build-models.py.
interface Golden {
  readonly clips: readonly { file: string; text: string; words: AudioWord[]; logprobs: number[] }[]
  readonly long: {
    readonly files: string[]
    readonly windowSeconds: number
    readonly text: string
    readonly words: AudioWord[]
  }
}

const runtime = openRuntime()

afterAll(() => runtime.close())

/** Ours are rounded to hundredths of a second. */
const close = (words: readonly AudioWord[]) =>
  words.map(({ word, start, end }) => ({
    word,
    start: expect.closeTo(start, 1.9),
    end: expect.closeTo(end, 1.9),
  }))

describe.each(['wav2vec2', 'hubert', 'wavlm'])('the %s layout', async (name) => {
  const folder = join(FIXTURES, name)
  const golden: Golden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8'))
  const recognizer = await openCtc({ runtime, folder })

  it.each(golden.clips)('reads the same words as the reference in $file', async (clip) => {
    const { file, text, words } = clip
    const result = await transcribe(recognizer, samplesOf(file))
    expect(result.text).toBe(text)
    expect(result.words).toEqual(close(words))
    expect(result.language).toBeNull()
    const tokens = defined(result.logprobs)
    expect(
      tokens
        .map(({ token }) => token)
        .join('')
        .trim(),
    ).toBe(text)
    const best = Math.max(...clip.logprobs)
    for (const { logprob } of tokens) expect(logprob).toBeLessThanOrEqual(best + 1e-3)
  })

  it('reads recordings of different lengths together as it reads each alone', async () => {
    const samples = ['en-1.wav', 'de-1.wav', 'en-1.wav'].map((file) => samplesOf(file))
    const clips = [...samples, defined(samples[0]).slice(0, 9000)]
    const together = await Promise.all(clips.map((clip) => transcribe(recognizer, clip)))
    for (const [index, clip] of clips.entries()) {
      const alone = await transcribe(recognizer, clip)
      expect(defined(together[index]).words).toEqual(alone.words)
      expect(defined(together[index]).text).toBe(alone.text)
    }
  })

  it('joins the windows of a long recording as the reference does', async () => {
    const { files, windowSeconds, text, words } = golden.long
    const short = await openCtc({ runtime, folder, windowSeconds })
    const parts: string[] = []
    const result = await transcribe(short, samplesOf(...files), {}, (part) => parts.push(part))
    expect(result.text).toBe(text)
    expect(result.words).toEqual(close(words))
    expect(parts.length).toBeGreaterThan(2)
    expect(parts.join('').trim()).toBe(text)
    await short.close()
  })
})

it('begins a segment where a second or more passes between two words', async () => {
  const recognizer = await openCtc({ runtime, folder: join(FIXTURES, 'wav2vec2') })
  const pause = new Float32Array(32_000)
  const samples = Float32Array.from([...samplesOf('en-1.wav'), ...pause, ...samplesOf('de-1.wav')])
  const { words = [], segments } = await transcribe(recognizer, samples)
  const first = words.filter(({ start }, at) => start - (words[at - 1]?.end ?? -1) >= 1)
  expect(segments.map(({ start }) => start)).toEqual(first.map(({ start }) => start))
  expect(segments.length).toBeGreaterThan(1)
  expect(segments.length).toBeLessThan(words.length)
  await recognizer.close()
})
