import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { dirname, resolve } from 'node:path'

import { env, pipeline } from '@huggingface/transformers'

import { openEncoder } from '#workers/embedding/encoder.ts'
import { openReranker } from '#workers/embedding/reranker.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { openClient, ratePerSecond } from './support/people.ts'
import { openService, postJson } from './support/service.ts'

const CLIENTS = 64
const TEXTS_EACH = 4
const BATCH = 32
const CHECKED = 32 // texts, before anything is measured
const COSINE_MIN = 0.9999
// Between 16 and 256 tokens.
const WORDS_MIN = 9
const WORDS_MAX = 164
const WORDS = 'the dog runs in the park while a woman reads an old book about ships and rivers'

interface Served {
  readonly id: string
  readonly folder: string
  readonly atLeast: number
}

const ENCODERS: readonly Served[] = [
  { id: 'tiny-embed', folder: 'models/tiny-embed', atLeast: 0.85 },
  { id: 'minilm-shape', folder: '.data/bench/minilm-shape', atLeast: 0.92 },
]
const RERANKERS: readonly Served[] = [
  { id: 'tiny-rerank', folder: 'models/tiny-rerank', atLeast: 0.85 },
  { id: 'minilm-rerank-shape', folder: '.data/bench/minilm-rerank-shape', atLeast: 0.92 },
]

/** Embeddings and rerank through the API, against loops over bare sessions and transformers.js. */
export async function benchEmbeddings(): Promise<readonly Figure[]> {
  const figures: Figure[] = []
  for (const encoder of present(ENCODERS)) figures.push(...(await measureEmbeddings(encoder)))
  for (const reranker of present(RERANKERS)) figures.push(await measureRerank(reranker))
  return figures
}

function present(models: readonly Served[]): readonly Served[] {
  return models.filter(({ folder }) => existsSync(folder))
}

/**
 * 64 clients that send one text at a time, against a bare session that takes the same texts sorted
 * by length in batches of 32, and against transformers.js one text after another.
 */
async function measureEmbeddings({ id, folder, atLeast }: Served): Promise<readonly Figure[]> {
  const service = await openService([{ id, kind: 'embedding', source: resolve(folder) }])
  const runtime = openRuntime()
  // One run at a time on all cores, as in a plain loop over a session.
  const encoder = await openEncoder({ runtime, folder: resolve(folder), poolSize: 1 })
  const connection = openClient(service.api.url)
  env.allowRemoteModels = false
  env.localModelPath = resolve(dirname(folder))
  const peer = await pipeline('feature-extraction', id, { dtype: 'fp32' })
  const texts = textsOfManyLengths(CLIENTS * TEXTS_EACH)
  const { signal } = new AbortController()
  const embed = async (input: string): Promise<Float32Array> => {
    const sent = { model: id, input, encoding_format: 'base64' }
    const { status, body } = await connection.post('/v1/embeddings', sent, service.headers)
    if (status !== 200)
      throw new Error(`an embedding was answered with ${status}: ${JSON.stringify(body)}`)
    const [{ embedding }] = body.data as [{ embedding: string }]
    return new Float32Array(Uint8Array.from(Buffer.from(embedding, 'base64')).buffer)
  }
  const ours = async (): Promise<void> => {
    const clients = Array.from({ length: CLIENTS }, async (_, client) => {
      for (let at = client; at < texts.length; at += CLIENTS) await embed(texts[at] as string)
    })
    await Promise.all(clients)
  }
  const bare = (): Promise<void> =>
    sortedBatches(texts, async (batch) => {
      const encoded = await Promise.all(batch.map((text) => encoder.encodeText(text)))
      await Promise.all(encoded.map((tokenIds) => encoder.embed(tokenIds, signal)))
    })
  const oneByOne = async (): Promise<void> => {
    for (const text of texts) await peer(text, { pooling: 'mean', normalize: true })
  }
  try {
    for (const text of texts.slice(0, CHECKED)) {
      const other = await peer(text, { pooling: 'mean', normalize: true })
      const cosine = dot(await embed(text), other.data as Float32Array)
      assert(cosine > COSINE_MIN, `the two sides disagree: ${cosine} for ${text}`)
    }
    const toBare = await alternate(perSecond(texts.length, ours), perSecond(texts.length, bare))
    const toPeer = await alternate(perSecond(texts.length, ours), perSecond(texts.length, oneByOne))
    const side = `${CLIENTS} clients of ${id} through the API`
    return [
      {
        name: `${side} ÷ a bare loop, sorted, in batches of ${BATCH}`,
        unit: 'texts/s',
        ...toBare,
        target: { atLeast },
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

/** One request with 100 documents, against a bare session that takes them sorted in batches. */
async function measureRerank({ id, folder, atLeast }: Served): Promise<Figure> {
  const model = { id, kind: 'embedding', source: resolve(folder), capabilities: ['rerank'] }
  const service = await openService([model])
  const runtime = openRuntime()
  const reranker = await openReranker({ runtime, folder: resolve(folder) })
  const documents = textsOfManyLengths(100)
  const query = 'where does the dog run'
  const { signal } = new AbortController()
  const ours = async (): Promise<void> => {
    await postJson(service, '/rerank', { model: id, query, documents })
  }
  const bare = (): Promise<void> =>
    sortedBatches(documents, async (batch) => {
      const pairs = batch.map((document) => reranker.encodePair(query, document))
      await Promise.all(pairs.map((pair) => reranker.logit(pair, signal)))
    })
  try {
    const count = documents.length
    return {
      name: `rerank of ${count} documents by ${id} through the API ÷ a bare loop, sorted, in batches of ${BATCH}`,
      unit: 'documents/s',
      ...(await alternate(perSecond(count, ours), perSecond(count, bare))),
      target: { atLeast },
    }
  } finally {
    await service.close()
    await reranker.close()
    await runtime.close()
  }
}

async function sortedBatches(
  texts: readonly string[],
  work: (batch: readonly string[]) => Promise<void>,
): Promise<void> {
  const sorted = texts.toSorted((one, other) => one.length - other.length)
  for (let start = 0; start < sorted.length; start += BATCH) {
    await work(sorted.slice(start, start + BATCH))
  }
}

function perSecond(count: number, work: () => Promise<void>): () => Promise<number> {
  return async () => count * (await ratePerSecond(1, 1, work))
}

/** The cosine of two vectors of length 1. */
function dot(one: Float32Array, other: Float32Array): number {
  return one.reduce((sum, value, at) => sum + value * (other[at] as number), 0)
}

function textsOfManyLengths(count: number): readonly string[] {
  const words = WORDS.split(' ')
  return Array.from({ length: count }, (_, at) =>
    Array.from(
      { length: WORDS_MIN + ((at * 37) % (WORDS_MAX - WORDS_MIN)) },
      (_word, place) => words[(at + place) % words.length],
    ).join(' '),
  )
}
