import { randomUUID } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, expect, inject, it } from 'vitest'

import { type FaultTiers, openFaultTiers, type TierProcess } from '#test/support/fault-tiers.ts'
import { createDatabase } from '#test/support/services.ts'
import { API_KEY } from '#test/support/tiers.ts'

const FIXTURES = join(import.meta.dirname, '../../fixtures')
const MODELS = join(import.meta.dirname, '../../../models')
const TIMEOUT_MS = 300_000
const WAIT = { timeout: 60_000, interval: 20 }
// Two thousand steps of the smallest of all pipelines: long enough to be interrupted.
const IMAGES = { model: 'images', prompt: 'a cat', n: 10, size: '256x256', steps: 150, seed: 5 }
const SAMPLE_RATE = 16_000

let tiers: FaultTiers
let url = ''
let close: () => Promise<void>

// An API process, and workers as the tests start them, with an image and a speech model.
beforeAll(async () => {
  const database = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-media-workers-'))
  const catalogue = join(folder, 'models.json')
  const models = [
    { id: 'images', kind: 'image', source: join(FIXTURES, 'models/stable-diffusion') },
    { id: 'speech', kind: 'audio', source: join(MODELS, 'tiny-whisper') },
    {
      id: 'letters',
      kind: 'audio',
      source: join(FIXTURES, 'models/wav2vec2'),
      options: { voiceActivityModel: join(FIXTURES, 'models/voice-activity') },
    },
    { id: 'moonshine', kind: 'audio', source: join(FIXTURES, 'models/moonshine') },
  ]
  await writeFile(catalogue, JSON.stringify({ models }))
  tiers = openFaultTiers({
    databaseUrl: database.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: `media-${randomUUID().slice(0, 8)}`,
    env: { MILLRACE_CATALOGUE: catalogue, MILLRACE_WORKER_MODELS: '' },
  })
  close = async () => {
    await tiers.stop()
    await database.drop()
    await rm(folder, { recursive: true, force: true })
  }
  url = (await tiers.startApi()).url
}, TIMEOUT_MS)
afterAll(() => close())

let running: TierProcess | undefined
const theWorker = async (): Promise<TierProcess> => (running ??= await tiers.startWorker())
const authorization = `Bearer ${API_KEY}`

function draw(fields: object = {}, init: RequestInit = {}): Promise<Response> {
  return fetch(`${url}/v1/images/generations`, {
    ...init,
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json', ...init.headers },
    body: JSON.stringify({ ...IMAGES, ...fields }),
  })
}

function listen(
  clip: Buffer,
  init: RequestInit = {},
  fields: Readonly<Record<string, string>> = {},
): Promise<Response> {
  const body = new FormData()
  const all = { model: 'speech', response_format: 'verbose_json', ...fields }
  for (const [name, value] of Object.entries(all)) body.set(name, value)
  body.set('file', new Blob([Uint8Array.from(clip)]), 'clip.wav')
  const headers = { authorization, ...init.headers }
  return fetch(`${url}/v1/audio/transcriptions`, { ...init, method: 'POST', headers, body })
}

/** A sentence over and over, for as many windows of 30 s. */
async function longClip(windows: number): Promise<Buffer> {
  const wav = await readFile(join(FIXTURES, 'audio/en-1.wav'))
  const samples = wav.subarray(44)
  const times = Math.ceil((windows * 30 * SAMPLE_RATE * 2) / samples.length)
  const data = Buffer.concat(Array.from({ length: times }, () => samples))
  const head = Buffer.from(wav.subarray(0, 44))
  head.writeUInt32LE(36 + data.length, 4)
  head.writeUInt32LE(data.length, 40)
  return Buffer.concat([head, data])
}

const busy = () => expect.poll(() => tiers.numActive(), WAIT).toBe(1)
const idle = () => expect.poll(() => tiers.numActive(), WAIT).toBe(0)

it('a client that disconnects frees the worker in the middle of its images and recordings', {
  timeout: TIMEOUT_MS,
}, async () => {
  const worker = await theWorker()
  const clip = await longClip(20)
  for (const ask of [
    (signal: AbortSignal) => draw({}, { signal }),
    (signal: AbortSignal) => listen(clip, { signal }),
  ]) {
    const leaving = new AbortController()
    const answer = ask(leaving.signal)
    answer.catch(() => {})
    await busy()
    leaving.abort()
    await expect(answer).rejects.toThrow()
    await idle()
  }
  expect((await draw({ n: 1, steps: 2 })).status).toBe(200)
  expect(worker.isRunning()).toBe(true)
})

it('a request whose time is over ends with 504 and frees the worker', {
  timeout: TIMEOUT_MS,
}, async () => {
  const worker = await theWorker()
  const clip = await longClip(20)
  expect((await draw({ n: 1, steps: 2 })).status).toBe(200)
  const headers = { 'x-stainless-timeout': '1.5' }
  for (const answer of [draw({}, { headers }), listen(clip, { headers })]) {
    const { status, headers: found } = await answer
    expect([status, found.get('content-type')]).toEqual([504, 'application/json; charset=utf-8'])
  }
  await idle()
  expect(worker.isRunning()).toBe(true)
})

it('a killed worker costs neither an image nor a word', { timeout: TIMEOUT_MS }, async () => {
  const clip = await longClip(3)
  const asks = [
    async () => {
      const answer = await draw({ n: 4, response_format: 'b64_json' })
      const { data } = (await answer.json()) as { data: { b64_json: string }[] }
      return data.map(({ b64_json: bytes }) => bytes)
    },
    async () => {
      const { text, segments } = (await (await listen(clip)).json()) as Record<string, unknown>
      return { text, segments }
    },
  ]
  let victim = await theWorker()
  for (const ask of asks) {
    const undisturbed = await ask()
    const answer = ask()
    await busy()
    victim.kill('SIGKILL')
    await victim.exited
    victim = await tiers.startWorker()
    expect(await answer).toEqual(undisturbed)
  }
})

it('every layout returns times and skips silence if it can, and reports the rest', {
  timeout: TIMEOUT_MS,
}, async () => {
  await theWorker()
  const clip = await readFile(join(FIXTURES, 'audio/en-1.wav'))
  const fields = {
    'timestamp_granularities[]': 'word',
    'chunking_strategy[type]': 'server_vad',
    'chunking_strategy[threshold]': '0.4',
    prompt: 'letters',
  }
  const letters = await listen(clip, {}, { ...fields, model: 'letters' })
  expect([letters.status, letters.headers.get('x-millrace-ignored-parameters')]).toEqual([
    200,
    'prompt',
  ])
  const timed = (await letters.json()) as { text: string; words: { word: string }[] }
  expect(timed.words.map(({ word }) => word).join(' ')).toBe(timed.text)
  expect(timed.text).not.toBe('')
  const moonshine = await listen(clip, {}, { ...fields, model: 'moonshine' })
  const ignored = moonshine.headers.get('x-millrace-ignored-parameters') ?? ''
  expect(ignored.split(/, */).sort()).toEqual([
    'chunking_strategy',
    'prompt',
    'timestamp_granularities[]',
  ])
  expect(await moonshine.json()).toMatchObject({ language: 'unknown', segments: [{ start: 0 }] })
})
