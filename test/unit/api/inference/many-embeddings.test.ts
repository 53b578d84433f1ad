import { setImmediate } from 'node:timers/promises'

import { expect, it } from 'vitest'

import { presentEmbeddings, writeEmbeddings } from '#api/inference/embeddings/embeddings.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'

const MODEL = { id: 'embed' } as CatalogueModel
const VECTORS = Array.from({ length: 100 }, (_, at) => {
  const numbers = Float32Array.from({ length: 1536 }, (_number, place) => at - place / 7)
  return Buffer.from(numbers.buffer).toString('base64')
})
const OUTCOME = {
  vectors: VECTORS,
  usage: { promptTokens: 300, completionTokens: 0, cachedTokens: 0 },
}

it.for(['float', 'base64'] as const)('writes as %s what it presents', async (format) => {
  const body = { input: 'text', encoding_format: format }
  for (const vectors of [VECTORS, VECTORS.slice(0, 1), []]) {
    const outcome = { ...OUTCOME, vectors }
    const written = await writeEmbeddings(MODEL, body, outcome)
    expect(JSON.parse(written)).toEqual(presentEmbeddings(MODEL, body, outcome))
  }
})

it('lets others have their turn while it writes very many numbers', async () => {
  let isWriting = true
  let turns = 0
  const others = async () => {
    while (isWriting) {
      await setImmediate()
      turns += 1
    }
  }
  const waiting = others()
  await writeEmbeddings(MODEL, { input: 'text' }, OUTCOME)
  isWriting = false
  await waiting
  expect(turns).toBeGreaterThan(10)
})
