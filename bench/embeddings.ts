import assert from 'node:assert/strict'
import { resolve } from 'node:path'

import { env, pipeline } from '@huggingface/transformers'

import { openEncoder } from '#workers/embedding/encoder.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { openClient } from './support/people.ts'
import { openService } from './support/service.ts'

const NAME = 'tiny-embed'
const CLIENTS = 64
const TEXTS_EACH = 8
const BATCH = 32
const CHECKED = 32 // texts, before anything is measured
const COSINE_MIN = 0.9999
const WORDS = 'the dog runs in the park while a woman reads an old book about ships and rivers'

/**
 * 64 clients that send one text at a time, against a bare session that takes the same texts sorted
 * by length in batches of 32, and against transformers.js one text after another.
 */
export async function benchEmbeddings(): Promise<readonly Figure[]> {
  const folder = resolve('models', NAME)
  const service = await openService([{ id: NAME, kind: 'embedding', source: folder }])
  const runtime = openRuntime()
  // One run at a time on all cores, as in a plain loop over a session.
  const encoder = await openEncoder({ runtime, folder, poolSize: 1 })
  const connection = openClient(service.api.url)
  env.allowRemoteModels = false
  env.localModelPath = resolve('models')
  const peer = await pipeline('feature-extraction', NAME, { dtype: 'fp32' })
  const texts = textsOfManyLengths()
  const { signal } = new AbortController()
  const speed = async (embedAll: () => Promise<void>): Promise<number> => {
    const startedAt = performance.now()
    await embedAll()
    return (texts.length * 1000) / (performance.now() - startedAt)
  }
  const embed = async (input: string): Promise<Float32Array> => {
    const sent = { model: NAME, input, encoding_format: 'base64' }
    const { status, body } = await connection.post('/v1/embeddings', sent, service.headers)
    if (status !== 200) throw new Error(`an embedding was answered with ${status}`)
    const [{ embedding }] = body.data as [{ embedding: string }]
    return new Float32Array(Uint8Array.from(Buffer.from(embedding, 'base64')).buffer)
  }
  const ours = async (): Promise<void> => {
    const clients = Array.from({ length: CLIENTS }, async (_, client) => {
      for (let at = client; at < texts.length; at += CLIENTS) await embed(texts[at] as string)
    })
    await Promise.all(clients)
  }
  const bare = async (): Promise<void> => {
    const sorted = texts.toSorted((one, other) => one.length - other.length)
    for (let start = 0; start < sorted.length; start += BATCH) {
      const batch: (readonly number[])[] = []
      for (const text of sorted.slice(start, start + BATCH)) {
        batch.push(await encoder.encodeText(text))
      }
      await Promise.all(batch.map((tokenIds) => encoder.embed(tokenIds, signal)))
    }
  }
  const oneByOne = async (): Promise<void> => {
    for (const text of texts) await peer(text, { pooling: 'mean', normalize: true })
  }
  try {
    for (const text of texts.slice(0, CHECKED)) {
      const other = await peer(text, { pooling: 'mean', normalize: true })
      const cosine = dot(await embed(text), other.data as Float32Array)
      assert(cosine > COSINE_MIN, `the two sides disagree: ${cosine} for ${text}`)
    }
    const toBare = await alternate(
      () => speed(ours),
      () => speed(bare),
    )
    const toPeer = await alternate(
      () => speed(ours),
      () => speed(oneByOne),
    )
    const side = `${CLIENTS} clients of ${NAME} through the API`
    return [
      {
        name: `${side} ÷ a bare loop, sorted, in batches of ${BATCH}`,
        unit: 'texts/s',
        ...toBare,
        target: { atLeast: 0.9 },
      },
      {
        name: `${side} ÷ transformers.js one by one`,
        unit: 'texts/s',
        ...toPeer,
        target: { atLeast: 5 },
      },
    ]
  } finally {
    connection.close()
    await service.close()
    await encoder.close()
    await runtime.close()
    await peer.dispose()
  }
}

/** The cosine of two vectors of length 1. */
function dot(one: Float32Array, other: Float32Array): number {
  return one.reduce((sum, value, at) => sum + value * (other[at] as number), 0)
}

function textsOfManyLengths(): readonly string[] {
  const words = WORDS.split(' ')
  return Array.from({ length: CLIENTS * TEXTS_EACH }, (_, at) =>
    Array.from(
      { length: 4 + ((at * 37) % 100) },
      (_word, place) => words[(at + place) % words.length],
    ).join(' '),
  )
}
