import assert from 'node:assert/strict'
import { resolve } from 'node:path'

import { env, pipeline } from '@huggingface/transformers'

import { wavOf } from '#test/support/wav.ts'
import { findAudioDecoder } from '#workers/audio/decode.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { openService } from './support/service.ts'

const NAME = 'tiny-whisper'
const CLIPS = ['en-1.wav', 'en-2.flac', 'de-1.wav', 'fr-2.flac']
const SECONDS_MAX = 60
const TURNS = 3 // of a round, which would be over in a fifth of a second
const SEGMENTS = { response_format: 'verbose_json', 'timestamp_granularities[]': 'segment' }
const WORDS = { ...SEGMENTS, 'timestamp_granularities[]': 'word' }

/**
 * Four clips at once through the API against transformers.js one after another, same text; and with
 * the times of words against those of segments.
 */
export async function benchAudio(): Promise<readonly Figure[]> {
  const service = await openService([{ id: NAME, kind: 'audio', source: resolve('models', NAME) }])
  env.allowRemoteModels = false
  env.localModelPath = resolve('models')
  const peer = await pipeline('automatic-speech-recognition', NAME, { dtype: 'q8' })
  // The peer is handed samples, having no decoder of its own; ours the same as WAV files.
  const samples = await Promise.all(CLIPS.map(samplesOf))
  const four = CLIPS.map((name, at) => ({ bytes: wavOf(samples[at] as Float32Array), name, at }))
  const ours = async (
    { bytes, name }: (typeof four)[number],
    fields: Readonly<Record<string, string>> = {},
  ): Promise<string> => {
    const body = new FormData()
    body.set('model', NAME)
    body.set('language', languageOf(name))
    for (const [field, value] of Object.entries(fields)) body.set(field, value)
    body.set('file', new Blob([bytes]), 'clip.wav')
    const { url, headers } = service
    const answer = await fetch(`${url}/audio/transcriptions`, { method: 'POST', headers, body })
    const { text } = (await answer.json()) as { text?: string }
    if (text === undefined) throw new Error(`the clip was answered ${answer.status}`)
    return text
  }
  const theirs = async ({ name, at }: (typeof four)[number]): Promise<string> => {
    // Ours decodes with timestamps, as the original does; asked without, this model says less.
    const asked = {
      language: languageOf(name),
      task: 'transcribe',
      return_timestamps: true,
    } as const
    const transcript = await peer(samples[at] as Float32Array, asked)
    return (transcript as { text: string }).text.trim()
  }
  const all = (fields?: Readonly<Record<string, string>>) =>
    Promise.all(four.map((clip) => ours(clip, fields)))
  const inTurn = async (): Promise<string[]> => {
    const texts: string[] = []
    for (const clip of four) texts.push(await theirs(clip))
    return texts
  }
  const speed = async (side: () => Promise<string[]>): Promise<number> => {
    const startedAt = performance.now()
    for (let turn = 0; turn < TURNS; turn += 1) await side()
    return (four.length * TURNS * 1000) / (performance.now() - startedAt)
  }
  try {
    assert.deepEqual(await all(), await inTurn(), 'the two sides disagree')
    const found = await alternate(
      () => speed(() => all()),
      () => speed(inTurn),
    )
    const timed = await alternate(
      () => speed(() => all(WORDS)),
      () => speed(() => all(SEGMENTS)),
    )
    const clips = `${four.length} clips of ${NAME} at once through the API`
    return [
      {
        name: `${clips} ÷ transformers.js in turn`,
        unit: 'clips/s',
        ...found,
        target: { atLeast: 2.5 },
      },
      {
        name: `${clips} with times of words ÷ of segments`,
        unit: 'clips/s',
        ...timed,
        target: { atLeast: 1 / 1.15 },
      },
    ]
  } finally {
    await service.close()
    await peer.dispose()
  }
}

const languageOf = (name: string): string => name.slice(0, 2)

async function samplesOf(name: string): Promise<Float32Array> {
  const { decode } = await findAudioDecoder()
  const tools = { secondsMax: SECONDS_MAX, signal: new AbortController().signal }
  const samples: number[] = []
  for await (const piece of decode(`test/fixtures/audio/${name}`, tools)) samples.push(...piece)
  // As exact as 16 bits are.
  return Float32Array.from(samples, (value) => Math.round(value * 32_767) / 32_768)
}
