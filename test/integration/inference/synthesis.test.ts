import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import OpenAI, { toFile } from 'openai'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { readEvals } from '#test/golden/models/shipped.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

import { wordErrors, wordsOf } from './word-errors.ts'

interface Spoken {
  readonly text: string
  readonly language: string
  readonly voice: string
}

const HEADER_BYTES = 44
const LONG = { timeout: 180_000 }

let tiers: Tiers
let client: OpenAI
let close: () => Promise<void>

beforeAll(async () => {
  const { url, drop } = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-synthesis-'))
  const env = { MILLRACE_WORKER_MODELS: 'tiny-whisper,tiny-tts' }
  const place = { databaseUrl: url, redisUrl: inject('redisUrl'), keyPrefix: freshPrefix() }
  tiers = await startTiers({ ...place, folder, env })
  close = async () => {
    await tiers.stop()
    await drop()
    await rm(folder, { recursive: true, force: true })
  }
  await tiers.startWorker()
  client = new OpenAI({ baseURL: `${tiers.url}/v1`, apiKey: tiers.apiKey, maxRetries: 0 })
}, 240_000)
afterAll(() => close?.())

async function speak(input: string, voice: string, more: object = {}): Promise<Buffer> {
  const body = { model: 'tts-1', input, voice, response_format: 'wav', ...more } as const
  return Buffer.from(await (await client.audio.speech.create(body)).arrayBuffer())
}

async function transcribe(wave: Buffer, language: string): Promise<string> {
  const file = await toFile(wave, 'speech.wav')
  return (await client.audio.transcriptions.create({ file, model: 'whisper-1', language })).text
}

const secondsOf = (wave: Buffer): number => (wave.length - HEADER_BYTES) / 2 / 16_000

describe('speech of the shipped voices', LONG, () => {
  it('is transcribed to the same words, in each language', async () => {
    let [errors, words] = [0, 0]
    for (const { text, language, voice } of readEvals<readonly Spoken[]>('tiny-tts')) {
      errors += wordErrors(await transcribe(await speak(text, voice), language), text)
      words += wordsOf(text).length
    }
    expect(words).toBeGreaterThan(60)
    // The card's rates are of sixty sentences a language; one of four may be off altogether.
    expect(errors / words).toBeLessThanOrEqual(0.15)
  })

  it('continues with the next sentence', async () => {
    const wave = await speak('The house is big and old. The dog is black and new.', 'nova')
    expect(wordsOf(await transcribe(wave, 'en')).join(' ')).toMatch(/house.*dog/)
  })

  it('has a voice for each of the usual names, which sound different', async () => {
    const [alloy, ash, female] = await Promise.all(
      ['alloy', 'ash', 'female'].map((voice) => speak('Anna sees the red house.', voice)),
    )
    expect(alloy).toEqual(female)
    expect(ash).not.toEqual(alloy)
    await expect(speak('Anna.', 'nobody')).rejects.toMatchObject({ status: 400, param: 'voice' })
  })

  it('is half as long at twice the speed', async () => {
    const text = 'We wait ten hours in the forest.'
    const [plain, fast] = [await speak(text, 'onyx'), await speak(text, 'onyx', { speed: 2 })]
    expect(secondsOf(plain) / secondsOf(fast)).toBeCloseTo(2, 1)
  })
})
