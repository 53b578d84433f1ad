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
  /**
   * The text that onnxruntime recognized in the samples before they were compressed; only in clips
   * of one window.
   */
  readonly recognized?: string
  readonly recognizedEnglish?: string
  readonly recognizedLanguage?: string
  /** From where to where each sentence is spoken. */
  readonly sentences: readonly (readonly [number, number])[]
}

// Written by `python -m models.training.tiny_whisper.clips`.
const AUDIO = join(import.meta.dirname, '../../fixtures/audio')
const { clips } = readJson<{ clips: readonly Clip[] }>(join(AUDIO, 'clips.json'))
const short = clips.filter(
  ({ recognized, sentences }) => recognized !== undefined && sentences.length === 1,
)
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

function recognize(
  clip: Clip,
  task: 'transcribe' | 'translate',
  language: string | null,
  prompt = '',
) {
  const samples = decode(join(AUDIO, clip.file), { secondsMax: 60, signal })
  return whisper.transcribe(
    samples,
    { task, language, prompt, temperature: 0, wordTimestamps: false },
    { signal },
  )
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
    ['transcribes', 'transcribe', 'recognized'],
    ['translates', 'translate', 'recognizedEnglish'],
  ] as const)('%s as onnxruntime did', async (_, task, field) => {
    const recognized = await Promise.all(short.map((clip) => recognize(clip, task, clip.language)))
    const texts = recognized.map(({ text }) => text)
    const references = short.map((clip) => clip[field] as string)
    expect(texts, JSON.stringify(texts)).toHaveLength(10)
    // Compression and resampling turn the one or other word.
    expect(wordErrorRate(texts, references), JSON.stringify(texts)).toBeLessThan(0.12)
  })

  it('detects the languages that onnxruntime detected', async () => {
    const recognized = await Promise.all(short.map((clip) => recognize(clip, 'transcribe', null)))
    const same = recognized.filter(({ language }, at) => language === short[at]?.recognizedLanguage)
    expect(same.length).toBeGreaterThanOrEqual(short.length - 1)
  })

  it('continues after its window of ten seconds to the end of a longer clip', async () => {
    const long = clips.find(({ file }) => file === 'en-long.flac') as Clip
    const { text, segments, durationSeconds } = await recognize(long, 'transcribe', 'en')
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

  it('recognizes nothing in silence, with any prompt', async () => {
    expect((await recognize(silence, 'transcribe', 'en')).text.trim()).toBe('')
    expect((await recognize(silence, 'transcribe', 'en', names)).text.trim()).toBe('')
  })

  it('recognizes as much after an unfamiliar text', async () => {
    const clip = clips.find(({ file }) => file === 'en-2.flac') as Clip
    expect((await recognize(clip, 'transcribe', null, names)).text.trim()).toBe(clip.recognized)
  })
})
