import { expect, it } from 'vitest'

import { writeEmbeddings } from '#api/inference/embeddings/embeddings.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import { countTurns } from '#test/support/turns.ts'

const MODEL = { id: 'embed' } as CatalogueModel
const VECTORS = Array.from({ length: 100 }, (_, at) => {
  const numbers = Float32Array.from({ length: 1536 }, (_number, place) => at - place / 7)
  return Buffer.from(numbers.buffer).toString('base64')
})
const OUTCOME = {
  vectors: VECTORS,
  usage: { promptTokens: 300, completionTokens: 0, cachedTokens: 0 },
}

it.for(['float', 'base64'] as const)('writes all vectors in their order as %s', async (format) => {
  const body = { input: 'text', encoding_format: format }
  for (const vectors of [VECTORS, VECTORS.slice(0, 1), []]) {
    const written = await writeEmbeddings(MODEL, body, { ...OUTCOME, vectors })
    expect(JSON.parse(written)).toEqual({
      object: 'list',
      model: 'embed',
      usage: { prompt_tokens: 300, total_tokens: 300 },
      data: vectors.map((vector, index) => ({
        object: 'embedding',
        index,
        embedding: format === 'base64' ? vector : floatsOf(vector),
      })),
    })
  }
})

function floatsOf(vector: string): readonly number[] {
  return [...new Float32Array(Uint8Array.from(Buffer.from(vector, 'base64')).buffer)]
}

it('lets other requests run while it writes very many numbers', async () => {
  const turns = countTurns()
  await writeEmbeddings(MODEL, { input: 'text' }, OUTCOME)
  expect(turns.end()).toBeGreaterThan(10)
})
