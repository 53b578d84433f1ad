import { existsSync } from 'node:fs'
import { resolve } from 'node:path'

import { openRuntime } from '#workers/runtime/runtime.ts'
import { openVoices } from '#workers/speech/open-voices.ts'
import { splitSentences } from '#workers/speech/sentences.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { openService } from './support/service.ts'

const SHIPPED = 'models/tiny-tts'
const REALISTIC = '.data/bench/mms-shape'
const SENTENCES = ['The red bird sings in the garden.', 'Anna buys a loaf of bread.']

/** Seconds for a text through the API as WAV ÷ the bare sessions of its sentences. */
export async function benchSpeech(): Promise<readonly Figure[]> {
  const shipped = await benchVoice({ name: 'tiny-tts', folder: SHIPPED, sentences: 24 })
  if (!existsSync(REALISTIC)) return [shipped]
  return [shipped, await benchVoice({ name: "MMS's shape", folder: REALISTIC, sentences: 6 })]
}

async function benchVoice(spoken: {
  readonly name: string
  readonly folder: string
  readonly sentences: number
}): Promise<Figure> {
  const { folder, sentences } = spoken
  const text = Array.from({ length: sentences }, (_, at) => SENTENCES[at % 2]).join(' ')
  const service = await openService([{ id: 'voice', kind: 'speech', source: resolve(folder) }])
  const runtime = openRuntime()
  const voices = await openVoices({ runtime, folder })
  const [voice = ''] = voices.names
  const { signal } = new AbortController()
  const ours = async (): Promise<void> => {
    const answer = await fetch(`${service.url}/audio/speech`, {
      method: 'POST',
      headers: { ...service.headers, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'voice', input: text, voice, response_format: 'wav' }),
    })
    const { byteLength } = await answer.arrayBuffer()
    if (!answer.ok || byteLength < text.length) throw new Error(`answered ${answer.status}`)
  }
  const theirs = async (): Promise<void> => {
    for (const sentence of splitSentences(text)) {
      const tokenIds = await voices.encode(sentence, voice)
      await voices.speak({ tokenIds, voice, speed: 1 }, signal)
    }
  }
  try {
    const found = await alternate(secondsOf(ours), secondsOf(theirs))
    const name = `a text of ${sentences} sentences spoken by ${spoken.name} through the API ÷ its bare sessions`
    return { name, unit: 's', ...found, target: { atMost: 1.1 } }
  } finally {
    await service.close()
    await voices.close()
    await runtime.close()
  }
}

function secondsOf(speak: () => Promise<void>): () => Promise<number> {
  return async () => {
    const startedAt = performance.now()
    await speak()
    return (performance.now() - startedAt) / 1000
  }
}
