import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { SpeechAudio, SpeechInput } from '#shared/contracts/speech.ts'
import { CancelledError } from '#shared/errors.ts'
import { countTurns } from '#test/support/turns.ts'
import { findAudioDecoder } from '#workers/audio/decode.ts'
import type { JobReplies } from '#workers/processors/processor-row.ts'
import { processSpeech } from '#workers/processors/speech.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { findSpeechEncoder } from '#workers/speech/encode-speech.ts'
import { openVoices } from '#workers/speech/open-voices.ts'
import { splitSentences } from '#workers/speech/sentences.ts'
import type { Voices } from '#workers/speech/voices.ts'

const MODELS = join(import.meta.dirname, '../../../fixtures/models')
const INPUT: SpeechInput = {
  task: 'speak',
  text: 'The quick fox. A lazy dog.',
  voice: 'low',
  speed: 1,
  format: 'wav',
}
const runtime = openRuntime()
const folder = await mkdtemp(join(tmpdir(), 'millrace-speech-'))
const encoder = await findSpeechEncoder()
const piper = await openVoices({ runtime, folder: join(MODELS, 'piper') })
const vits = await openVoices({ runtime, folder: join(MODELS, 'vits') })
afterAll(async () => {
  await piper.close()
  await vits.close()
  await runtime.close()
  await rm(folder, { recursive: true })
})

async function speak(
  change: Partial<SpeechInput> = {},
  voices: Voices = piper,
  abortAt = Infinity,
) {
  const abort = new AbortController()
  const parts: SpeechAudio[] = []
  const sentences: number[] = []
  let format: string | undefined
  let seconds = 0
  const reply = {
    started: (_tokens: number, report: { speechFormat?: string }) => (format = report.speechFormat),
    progress(step: number, _steps: number, { audio }: { audio?: SpeechAudio } = {}) {
      if (audio !== undefined) parts.push(audio)
      sentences.push(step)
      if (parts.length >= abortAt) abort.abort()
    },
    result: ({ durationSeconds }: { durationSeconds: number }) => (seconds = durationSeconds),
  } as unknown as JobReplies<'speech'>
  const job = { input: { ...INPUT, ...change }, enqueuedAtMs: 0 }
  await processSpeech(job as unknown as JobEnvelope<'speech'>, {
    model: { voices, encoder },
    reply,
    signal: abort.signal,
    clock: systemClock,
  })
  const bytes = Buffer.concat(parts.map(({ data }) => Buffer.from(data, 'base64')))
  return { bytes, parts, sentences, format, seconds }
}

describe('a text', () => {
  it('is spoken sentence by sentence; each is sent before the next is synthesized', async () => {
    const { bytes, parts, sentences, seconds } = await speak()
    expect(bytes.toString('latin1', 0, 4)).toBe('RIFF')
    expect(bytes.readUInt32LE(24)).toBe(22_050)
    // A pause of 0.2 s lies between the sentences.
    expect((bytes.length - 44) / 2).toBe(Math.round((seconds + 0.2) * 22_050))
    expect(new Set(sentences)).toEqual(new Set([0, 1, 2]))
    let offset = 0
    for (const part of parts) {
      expect(part.offset).toBe(offset)
      offset += Buffer.from(part.data, 'base64').length
    }
  })

  it('is 24 kHz without a header as pcm', async () => {
    const { bytes, seconds } = await speak({ format: 'pcm', text: 'The quick fox.' })
    expect(bytes.length / 2 / 24_000).toBeCloseTo(seconds, 2)
  })

  it('lets the event loop turn while a long sentence is encoded', async () => {
    const wave = new Float32Array(60 * piper.sampleRate).fill(0.25)
    const turns = countTurns()
    const { bytes } = await speak({ format: 'pcm' }, { ...piper, speak: async () => wave })
    expect(turns.end()).toBeGreaterThan(20)
    expect(bytes.length / 2).toBe(120.2 * 24_000)
  })

  it('is shorter when spoken faster, and differs by the voice', async () => {
    const plain = await speak()
    const fast = await speak({ speed: 2 })
    const ratio = plain.seconds / fast.seconds
    expect(ratio).toBeGreaterThan(1.9)
    expect(ratio).toBeLessThan(2.1)
    expect((await speak({ voice: 'high' })).bytes).not.toEqual(plain.bytes)
  })

  it('accepts the usual names of voices for its own', async () => {
    expect((await speak({ voice: 'alloy' })).bytes).toEqual((await speak({ voice: 'low' })).bytes)
    expect((await speak({ voice: 'ash' })).bytes).toEqual((await speak({ voice: 'high' })).bytes)
  })

  it('ends when it is cancelled between sentences', async () => {
    await expect(speak({}, piper, 1)).rejects.toThrow(CancelledError)
  })

  it('without a format is encoded in a format that this machine supports', async () => {
    const { format } = await speak({ format: null })
    expect(format).toBe(encoder.formats.includes('mp3') ? 'mp3' : 'wav')
  })
})

describe('a request that cannot be spoken', () => {
  it.each([
    ['an unknown voice', { voice: 'nobody' }, piper, 'voice', /this model has low, high/],
    [
      'another speed than the only one',
      { voice: 'speaker-0', speed: 2 },
      vits,
      'speed',
      /one speed/,
    ],
    ['a text without words', { text: '… !' }, piper, 'input', /nothing/],
    ['letters of another script', { text: '日本語' }, piper, 'input', /nothing/],
  ])('is refused: %s', async (_what, change, voices, param, message) => {
    await expect(speak(change, voices)).rejects.toMatchObject({
      kind: 'invalidRequest',
      param,
      message: expect.stringMatching(message),
    })
  })
})

describe.each(['mp3', 'opus', 'aac', 'flac'] as const)('%s', (format) => {
  it('is decoded to the length of the speech, or refused without FFmpeg', async () => {
    if (!encoder.formats.includes(format)) {
      return expect(speak({ format })).rejects.toMatchObject({ param: 'response_format' })
    }
    const { bytes, seconds } = await speak({ format })
    const path = join(folder, `speech.${format}`)
    await writeFile(path, bytes)
    const { decode } = await findAudioDecoder()
    let samples = 0
    const { signal } = new AbortController()
    for await (const piece of decode(path, { secondsMax: 60, signal })) samples += piece.length
    expect(Math.abs(samples / 16_000 - seconds - 0.2)).toBeLessThan(0.15)
  })
})

describe('splitting into sentences', () => {
  it.each([
    ['Hello there. How are you? Fine!', ['Hello there.', 'How are you?', 'Fine!']],
    ['  one\n\nline  ', ['one line']],
    ['…', []],
    ['今日は。元気ですか。', ['今日は。', '元気ですか。']],
  ])('%j', (text, sentences) => {
    expect(splitSentences(text)).toEqual(sentences)
  })

  it('cuts long sentences at phrases and loses nothing', () => {
    const text = `${'a long phrase of words, '.repeat(60)}end`
    const parts = splitSentences(text)
    expect(parts.length).toBeGreaterThan(4)
    expect(Math.max(...parts.map(({ length }) => length))).toBeLessThanOrEqual(300)
    expect(parts.join(' ')).toBe(text)
    expect(splitSentences('x'.repeat(1000)).join('')).toBe('x'.repeat(1000))
  })
})
