import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'

import { env, pipeline } from '@huggingface/transformers'

import type { Figure } from './figure.ts'
import { takeTurns } from './rounds.ts'
import { openService } from './support/service.ts'

const NAME = 'tiny-whisper'
// WAV, so that the peer can be handed the samples without a decoder of its own.
const CLIPS = ['en-1.wav', 'en-1.wav', 'en-1.wav', 'en-1.wav']
const LANGUAGES = ['en', 'en', 'en', 'en']
const WAV_HEAD_BYTES = 44

/** Four clips at once through the API against transformers.js one after another: same text. */
export async function benchAudio(): Promise<readonly Figure[]> {
  const service = await openService([{ id: NAME, kind: 'audio', source: resolve('models', NAME) }])
  env.allowRemoteModels = false
  env.localModelPath = resolve('models')
  const peer = await pipeline('automatic-speech-recognition', NAME, { dtype: 'q8' })
  const files = await Promise.all(CLIPS.map((name) => readFile(`test/fixtures/audio/${name}`)))
  const four = files.map((bytes, at) => ({ bytes, name: CLIPS[at] as string, at }))
  const ours = async ({ bytes, name, at }: (typeof four)[number]): Promise<string> => {
    const body = new FormData()
    body.set('model', NAME)
    body.set('language', LANGUAGES[at] as string)
    body.set('file', new Blob([Uint8Array.from(bytes)]), name)
    const { url, headers } = service
    const answer = await fetch(`${url}/audio/transcriptions`, { method: 'POST', headers, body })
    const { text } = (await answer.json()) as { text?: string }
    if (text === undefined) throw new Error(`the clip was answered ${answer.status}`)
    return text
  }
  const theirs = async ({ bytes, at }: (typeof four)[number]): Promise<string> => {
    const language = LANGUAGES[at] as string
    const heard = await peer(samplesOf(bytes), { language, task: 'transcribe' })
    return (heard as { text: string }).text.trim()
  }
  const all = () => Promise.all(four.map(ours))
  const inTurn = async (): Promise<string[]> => {
    const texts: string[] = []
    for (const clip of four) texts.push(await theirs(clip))
    return texts
  }
  const speed = async (side: () => Promise<string[]>): Promise<number> => {
    const startedAt = performance.now()
    await side()
    return (four.length * 1000) / (performance.now() - startedAt)
  }
  try {
    assert.deepEqual(await all(), await inTurn(), 'the two sides disagree')
    const found = await takeTurns(
      () => speed(all),
      () => speed(inTurn),
    )
    const name = `${four.length} clips of ${NAME} at once through the API ÷ transformers.js in turn`
    return [{ name, unit: 'clips/s', ...found, target: { atLeast: 2.5 } }]
  } finally {
    await service.close()
    await peer.dispose()
  }
}

/** The samples of a WAV file of one channel and 16 bits. */
function samplesOf(wav: Buffer): Float32Array {
  const samples = new Float32Array((wav.length - WAV_HEAD_BYTES) / 2)
  for (let at = 0; at < samples.length; at += 1) {
    samples[at] = wav.readInt16LE(WAV_HEAD_BYTES + 2 * at) / 32_768
  }
  return samples
}
