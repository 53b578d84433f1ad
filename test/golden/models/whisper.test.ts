import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { findAudioDecoder } from '#workers/audio/decode.ts'
import { openWhisper } from '#workers/audio/whisper.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { modelFolder, readJson } from './shipped.ts'

interface Clip {
  readonly file: string
  readonly language: string | null
  readonly seconds: number
  readonly text: string
  /** What onnxruntime heard in the samples before they were compressed; only in clips of one window. */
  readonly heard?: string
  readonly heardEnglish?: string
  readonly heardLanguage?: string
  /** From where to where each sentence is spoken. */
  readonly sentences: readonly (readonly [number, number])[]
}

// Written by `python -m models.training.tiny_whisper.clips`.
const AUDIO = join(import.meta.dirname, '../../fixtures/audio')
const { clips } = readJson<{ clips: readonly Clip[] }>(join(AUDIO, 'clips.json'))
const short = clips.filter(({ heard, sentences }) => heard !== undefined && sentences.length === 1)
const { signal } = new AbortController()
const runtime = openRuntime()
const { decode } = await findAudioDecoder()
const whisper = await openWhisper({
  runtime,
  folder: modelFolder('tiny-whisper'),
  session: { intraOpThreads: 1 },
})

afterAll(async () => {
  await whisper.close()
  await runtime.close()
})

function hear(clip: Clip, task: 'transcribe' | 'translate', language: string | null, prompt = '') {
  const samples = decode(join(AUDIO, clip.file), { secondsMax: 60, signal })
  return whisper.transcribe(samples, { task, language, prompt, temperature: 0 }, { signal })
}

function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []
}

/** Words to insert, delete and exchange (Levenshtein) for each word of the reference. */
function wordErrorRate(texts: readonly string[], references: readonly string[]): number {
  let errors = 0
  for (const [at, reference] of references.entries()) {
    const wanted = wordsOf(reference)
    let row = wanted.map((_, column) => column + 1)
    for (const [line, word] of wordsOf(texts[at] as string).entries()) {
      let [corner, left] = [line, line + 1]
      row = row.map((above, column) => {
        left = Math.min(above + 1, left + 1, corner + (wanted[column] === word ? 0 : 1))
        corner = above
        return left
      })
    }
    errors += row.at(-1) ?? 0
  }
  return errors / references.flatMap(wordsOf).length
}

// Several decoders at a time on a busy machine.
const TIMEOUT_MS = 180_000

describe('tiny-whisper through the decoders and windows of a worker', {
  timeout: TIMEOUT_MS,
}, () => {
  it.each([
    ['transcribes', 'transcribe', 'heard'],
    ['translates', 'translate', 'heardEnglish'],
  ] as const)('%s as onnxruntime did', async (_, task, field) => {
    const heard = await Promise.all(short.map((clip) => hear(clip, task, clip.language)))
    const texts = heard.map(({ text }) => text)
    const references = short.map((clip) => clip[field] as string)
    expect(texts, JSON.stringify(texts)).toHaveLength(10)
    // Compression and resampling turn the one or other word.
    expect(wordErrorRate(texts, references), JSON.stringify(texts)).toBeLessThan(0.12)
  })

  it('detects the languages that onnxruntime detected', async () => {
    const heard = await Promise.all(short.map((clip) => hear(clip, 'transcribe', null)))
    const same = heard.filter(({ language }, at) => language === short[at]?.heardLanguage)
    expect(same.length).toBeGreaterThanOrEqual(short.length - 1)
  })

  it('goes on after its window of ten seconds, to the end of a longer clip', async () => {
    const long = clips.find(({ file }) => file === 'en-long.flac') as Clip
    const { text, segments, durationSeconds } = await hear(long, 'transcribe', 'en')
    expect(durationSeconds).toBeCloseTo(long.seconds, 1)
    expect(wordErrorRate([text], [long.text]), text).toBeLessThan(0.25)
    const missed = long.sentences.filter(
      ([from]) => !segments.some(({ start }) => Math.abs(start - from) <= 0.3),
    )
    expect(missed.length, JSON.stringify(segments)).toBeLessThanOrEqual(1)
    for (const [at, { start, end }] of segments.entries()) {
      expect(start).toBeGreaterThanOrEqual(segments[at - 1]?.end ?? 0)
      expect(end).toBeGreaterThanOrEqual(start)
    }
  })

  const silence = clips.find(({ file }) => file === 'silence.wav') as Clip
  const names = 'The picture is read and gnu.'

  it('hears nothing in silence, whatever is said to come before it', async () => {
    expect((await hear(silence, 'transcribe', 'en')).text.trim()).toBe('')
    expect((await hear(silence, 'transcribe', 'en', names)).text.trim()).toBe('')
  })

  it('hears no less after a text that is unlike what it knows', async () => {
    const clip = clips.find(({ file }) => file === 'en-2.flac') as Clip
    expect((await hear(clip, 'transcribe', null, names)).text.trim()).toBe(clip.heard)
  })
})
