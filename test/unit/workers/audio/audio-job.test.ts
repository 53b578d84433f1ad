import { readFileSync } from 'node:fs'
import { cp, mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'

import { afterAll, describe, expect, it, vi } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import type { AudioInput, AudioResult, SpokenToken } from '#shared/contracts/audio.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { StartReport } from '#shared/contracts/reply.ts'
import { defined } from '#shared/json.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { findAudioDecoder } from '#workers/audio/decode.ts'
import type { Recognizer, WindowText } from '#workers/audio/recognizer.ts'
import { openWhisper } from '#workers/audio/whisper.ts'
import { processAudio, sweepClips } from '#workers/processors/audio.ts'
import type { JobReplies } from '#workers/processors/processor-row.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

// Random weights: the assertions concern where and how the clip is read, not the text.
const MODEL = join(import.meta.dirname, '../../../fixtures/models/whisper')
const CLIPS = join(import.meta.dirname, '../../../fixtures/audio')
const INPUT: Omit<AudioInput, 'audioKey'> = {
  task: 'transcribe',
  filename: 'clip.wav',
  language: 'en',
  prompt: '',
  temperature: 0.4,
  wordTimestamps: false,
}
const runtime = openRuntime()
const folder = await mkdtemp(join(tmpdir(), 'millrace-clips-'))
const storage = openDirectoryStore(folder)
const recognizer = await openWhisper({ runtime, folder: MODEL })
const timing = await openWhisper({ runtime, folder: join(MODEL, '../whisper-words') })
const { decode } = await findAudioDecoder()
await storage.put('clip', readFileSync(join(CLIPS, 'en-1.wav')))
await storage.put('long', readFileSync(join(CLIPS, 'en-long.flac')))

afterAll(async () => {
  await Promise.all([recognizer.close(), timing.close()])
  await runtime.close()
  await rm(folder, { recursive: true })
})

async function listen(
  change: Partial<AudioInput> = {},
  { abortAtWindow = Infinity, by = recognizer }: { abortAtWindow?: number; by?: Recognizer } = {},
) {
  const abort = new AbortController()
  const progress: number[] = []
  const texts: (string | undefined)[] = []
  const parts: (readonly SpokenToken[])[] = []
  const found: AudioResult[] = []
  const reports: (StartReport | undefined)[] = []
  const reply = {
    started: (_promptTokens: number, report?: StartReport) => reports.push(report),
    progress(step: number, _steps: number, said: Partial<WindowText> = {}) {
      progress.push(step)
      texts.push(said.text)
      parts.push(said.logprobs ?? [])
      if (step >= abortAtWindow) abort.abort()
    },
    result: (result: AudioResult) => found.push(result),
    delta: () => {},
  } as unknown as JobReplies<'audio'>
  const job = { input: { ...INPUT, audioKey: 'clip', ...change }, enqueuedAtMs: 0 }
  await processAudio(job as unknown as JobEnvelope<'audio'>, {
    model: { recognizer: by, decode, storage },
    reply,
    signal: abort.signal,
    clock: systemClock,
  })
  return { result: found[0] as AudioResult, progress, texts, parts, reports }
}

it('reads a clip window by window and reports its progress', async () => {
  const { result, progress, reports } = await listen()
  expect(reports).toEqual([{}])
  expect(result.durationSeconds).toBeCloseTo(2.54, 1)
  expect(result.language).toBe('en')
  expect(progress.length).toBeGreaterThanOrEqual(2)
  expect(progress).toEqual(progress.map((_step, index) => index + 1))
  for (const { start, end, temperature } of result.segments) {
    expect(end).toBeGreaterThan(start)
    expect(end).toBeLessThanOrEqual(2.55)
    expect(temperature).toBe(0.4)
  }
})

it('reports the text of each window on request', async () => {
  const quiet = await listen()
  expect(quiet.texts.every((text) => text === undefined)).toBe(true)
  const { texts, result } = await listen({ stream: true })
  expect(texts.length).toBeGreaterThanOrEqual(2)
  expect(texts.join('').trim()).toBe(result.text)
  expect(result.text).toBe(quiet.result.text)
})

it('gives clips that run together the same text as alone', async () => {
  const changes = [{}, { task: 'translate' as const }, { prompt: 'red and new' }]
  const together = await Promise.all(changes.map((change) => listen(change)))
  for (const [index, change] of changes.entries()) {
    expect(defined(together[index]).result.text).toBe((await listen(change)).result.text)
  }
})

it.each([
  ['task', { task: 'translate' as const }],
  ['language', { language: 'de' }],
  ['prompt', { prompt: 'red and new' }],
  ['temperature', { temperature: 1 }],
])('lets the %s change the answer', async (_name, change) => {
  const plain = await listen()
  const changed = await listen(change)
  const idsOf = ({ result }: typeof plain) => result.segments.flatMap(({ tokenIds }) => tokenIds)
  expect(idsOf(changed)).not.toEqual(idsOf(plain))
})

it('detects the language when none is given', async () => {
  const { result } = await listen({ language: null })
  expect(['en', 'de']).toContain(result.language)
})

it('detects one of the languages that are given', async () => {
  for (const code of ['en', 'de']) {
    const { result } = await listen({ language: null, among: [code, 'fr'] })
    expect(result.language).toBe(code)
  }
  const { result } = await listen({ language: null, among: ['fr'] })
  expect(['en', 'de']).toContain(result.language)
})

it('returns log-probabilities of the tokens only on request', async () => {
  expect((await listen()).result.logprobs).toBeUndefined()
  const { result, parts } = await listen({ logprobs: true, stream: true })
  const logprobs = defined(result.logprobs)
  expect(logprobs.map(({ bytes }) => Buffer.from(bytes)).join('')).not.toBe('')
  const bytes = Buffer.concat(logprobs.map((token) => Buffer.from(token.bytes)))
  expect(bytes.toString().trim()).toBe(result.text)
  for (const { logprob } of logprobs) expect(logprob).toBeLessThan(0)
  expect(parts.flat()).toEqual(logprobs)
})

it('returns times of words only on request', async () => {
  expect((await listen({}, { by: timing })).result.words).toBeUndefined()
  const { result, reports } = await listen({ wordTimestamps: true }, { by: timing })
  expect(reports).toEqual([{}])
  const words = defined(result.words)
  expect(words.length).toBeGreaterThan(0)
  for (const { start, end } of words) {
    expect(start).toBeGreaterThanOrEqual(0)
    expect(end).toBeGreaterThanOrEqual(start)
    expect(end).toBeLessThanOrEqual(result.durationSeconds)
  }
})

it('invents no times of words: the field is reported as ignored', async () => {
  const copy = join(folder, 'without-times')
  await cp(MODEL, copy, { recursive: true })
  const settings = JSON.parse(readFileSync(join(copy, 'generation_config.json'), 'utf8'))
  const listed = JSON.stringify({ ...settings, alignment_heads: [[9, 0]] })
  await writeFile(join(copy, 'generation_config.json'), listed)
  const by = await openWhisper({ runtime, folder: copy })
  const { result, reports } = await listen({ wordTimestamps: true }, { by })
  await by.close()
  expect(reports).toEqual([{ ignored: ['timestamp_granularities[]'] }])
  expect(result.words).toBeUndefined()
})

describe('refusals', () => {
  it.each([
    ['a language that the model has not learned', { language: 'xx' }, 'language'],
    ['a file that is not sound', { audioKey: 'noise' }, 'file'],
    ['a clip shorter than a tenth of a second', { audioKey: 'short' }, 'file'],
  ])('%s, naming the field', async (_name, change, param) => {
    await storage.put('noise', Buffer.from('this is not sound at all'.repeat(40)))
    await storage.put('short', shortWav())
    await expect(listen(change)).rejects.toMatchObject({ kind: 'invalidRequest', param })
  })
})

it('finds a recording without a sample too short, not broken', async () => {
  await storage.put('blank', readFileSync(join(CLIPS, 'en-1.wav')).subarray(0, 44))
  await expect(listen({ audioKey: 'blank' })).rejects.toMatchObject({ code: 'audio_too_short' })
})

it('stops between two windows when it is cancelled and leaves no file behind', async () => {
  vi.stubEnv('TMPDIR', folder)
  await expect(listen({ audioKey: 'long' }, { abortAtWindow: 2 })).rejects.toMatchObject({
    name: 'CancelledError',
  })
  const left = (await readdir(folder)).filter((name) => name.startsWith('millrace-audio-'))
  vi.unstubAllEnvs()
  expect(left).toEqual([])
})

it('creates the folder for recordings if the system has none', async () => {
  vi.stubEnv('TMPDIR', join(folder, 'not', 'yet'))
  await sweepClips(systemClock)
  await expect(listen({})).resolves.toBeDefined()
  vi.unstubAllEnvs()
})

it('deletes the recordings that killed workers left, and no others', async () => {
  vi.stubEnv('TMPDIR', folder)
  const old = await mkdtemp(join(folder, 'millrace-audio-'))
  const other = await mkdtemp(join(folder, 'another-'))
  await utimes(old, 0, 0)
  await utimes(other, 0, 0)
  const young = await mkdtemp(join(folder, 'millrace-audio-'))
  await sweepClips(systemClock)
  vi.unstubAllEnvs()
  const left = await readdir(folder)
  expect([old, other, young].map((path) => left.includes(basename(path)))).toEqual([
    false,
    true,
    true,
  ])
  await rm(young, { recursive: true })
})

/** 50 ms. */
function shortWav(): Buffer {
  const wav = Buffer.from(readFileSync(join(MODEL, 'golden.wav')).subarray(0, 44 + 1600))
  wav.writeUInt32LE(wav.length - 8, 4)
  wav.writeUInt32LE(1600, 40)
  return wav
}
