import { readFileSync } from 'node:fs'
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { openEncoder } from '#workers/embedding/encoder.ts'
import { openSparseEncoder } from '#workers/embedding/sparse-encoder.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

// Recorded from sentence-transformers and PyTorch by test/fixtures/build-models.py.
const FIXTURES = join(import.meta.dirname, '../fixtures/models')
const FOREVER = new AbortController().signal
const runtime = openRuntime()
const folders: string[] = []

afterAll(async () => {
  for (const folder of folders) await rm(folder, { recursive: true })
  await runtime.close()
})

type Weights = readonly (readonly [index: number, weight: number])[]
type SparseEncoder = Awaited<ReturnType<typeof openSparseEncoder>>

function readGolden<T>(family: string): T {
  return JSON.parse(readFileSync(join(FIXTURES, family, 'golden.json'), 'utf8'))
}

/** A copy of a model with one file written anew. */
async function copyWith(family: string, file: string, content: object): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-sparse-'))
  folders.push(folder)
  await cp(join(FIXTURES, family), folder, { recursive: true })
  await writeFile(join(folder, file), JSON.stringify(content))
  return folder
}

/** Compares the vectors of all texts, alone and in one batch. */
async function compare(encoder: SparseEncoder, ids: number[][], golden: readonly Weights[]) {
  const together = await Promise.all(ids.map((tokenIds) => encoder.embed(tokenIds, FOREVER)))
  for (const [index, tokenIds] of ids.entries()) {
    const expected = golden[index] as Weights
    for (const vector of [await encoder.embed(tokenIds, FOREVER), together[index]]) {
      expect([...(vector?.indices ?? [])]).toEqual(expected.map(([id]) => id))
      for (const [at, [, weight]] of expected.entries()) {
        expect(vector?.values[at]).toBeCloseTo(weight, 4)
      }
    }
  }
}

const SPLADE = readGolden<{
  texts: string[]
  ids: number[][]
  heads: { strategy: string; activation: string; weights: Weights[] }[]
}>('splade')

describe.each(SPLADE.heads)('SPLADE with $strategy of $activation', async (head) => {
  const { strategy: pooling_strategy, activation: activation_function, weights } = head
  const config = { pooling_strategy, activation_function }
  const folder = await copyWith('splade', '1_SpladePooling/config.json', config)
  const encoder = await openSparseEncoder({ runtime, folder })
  afterAll(() => encoder.close())

  it('gives the weights of the reference, alone and in a batch', async () => {
    expect(await Promise.all(SPLADE.texts.map((text) => encoder.encodeText(text)))).toEqual(
      SPLADE.ids,
    )
    await compare(encoder, SPLADE.ids, weights)
  })
})

describe('the sparse head of BGE-M3', async () => {
  const folder = join(FIXTURES, 'bge-m3')
  const golden = readGolden<{ ids: number[][]; embeddings: number[][]; weights: Weights[] }>(
    'bge-m3',
  )
  const sparse = await openSparseEncoder({ runtime, folder })
  const dense = await openEncoder({ runtime, folder })
  afterAll(() => Promise.all([sparse.close(), dense.close()]))

  it('gives the largest weight of each token that is not special', async () => {
    expect(golden.weights.some((row) => row.length > 0)).toBe(true)
    await compare(sparse, golden.ids, golden.weights)
  })

  it('does not change the dense vectors of an embedding model', async () => {
    for (const [index, tokenIds] of golden.ids.entries()) {
      const vector = await dense.embed(tokenIds, FOREVER)
      for (const [at, value] of (golden.embeddings[index] as number[]).entries()) {
        expect(vector[at]).toBeCloseTo(value, 4)
      }
    }
  })
})

describe('a sparse encoder that is refused when it is loaded', () => {
  const pooling = '1_SpladePooling/config.json'
  const modules = (kind: string) => [{}, { type: `sentence_transformers.${kind}`, path: '1' }]
  it.each([
    ['splade', pooling, { pooling_strategy: 'mean' }, 'the pooling mean of relu is not known'],
    ['splade', pooling, { activation_function: 'gelu' }, 'the pooling max of gelu is not known'],
    ['splade', 'modules.json', modules('SparseAutoEncoder'), 'the module SparseAutoEncoder of'],
    ['minilm', 'modules.json', modules('SpladePooling'), 'it needs logits of [batch, length, 221]'],
  ])('%s with %s of %j', async (family, file, content, message) => {
    const folder = await copyWith(family, file, content)
    await expect(openSparseEncoder({ runtime, folder })).rejects.toThrow(message)
  })

  it('is not an encoder of dense vectors', async () => {
    const opening = openEncoder({ runtime, folder: join(FIXTURES, 'splade') })
    await expect(opening).rejects.toThrow('needs "capabilities": ["sparse"] in models.json')
  })
})
