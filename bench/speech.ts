import { resolve } from 'node:path'

import { openRuntime } from '#workers/runtime/runtime.ts'
import { openVoices } from '#workers/speech/open-voices.ts'
import { splitSentences } from '#workers/speech/sentences.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { openService } from './support/service.ts'

const FOLDER = 'models/tiny-tts'
const SENTENCES = ['The red bird sings in the garden.', 'Anna buys a loaf of bread.']
const TEXT = Array.from({ length: 24 }, (_, at) => SENTENCES[at % SENTENCES.length]).join(' ')

/** Seconds for a text of 24 sentences through the API as WAV ÷ the bare sessions of the model. */
export async function benchSpeech(): Promise<readonly Figure[]> {
  const service = await openService([{ id: 'voice', kind: 'speech', source: resolve(FOLDER) }])
  const runtime = openRuntime()
  const voices = await openVoices({ runtime, folder: FOLDER })
  try {
    const [voice = ''] = voices.names
    const { signal } = new AbortController()
    const seconds = async (speak: () => Promise<void>): Promise<number> => {
      const startedAt = performance.now()
      await speak()
      return (performance.now() - startedAt) / 1000
    }
    const ours = async (): Promise<void> => {
      const answer = await fetch(`${service.url}/audio/speech`, {
        method: 'POST',
        headers: { ...service.headers, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'voice', input: TEXT, voice, response_format: 'wav' }),
      })
      const { byteLength } = await answer.arrayBuffer()
      if (!answer.ok || byteLength < TEXT.length) throw new Error(`answered ${answer.status}`)
    }
    const theirs = async (): Promise<void> => {
      for (const sentence of splitSentences(TEXT)) {
        const tokenIds = await voices.encode(sentence, voice)
        await voices.speak({ tokenIds, voice, speed: 1 }, signal)
      }
    }
    const found = await alternate(
      () => seconds(ours),
      () => seconds(theirs),
    )
    const name = 'a text of 24 sentences spoken by tiny-tts through the API ÷ its bare sessions'
    return [{ name, unit: 's', ...found, target: { atMost: 1.1 } }]
  } finally {
    await service.close()
    await voices.close()
    await runtime.close()
  }
}
