import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { openEncoder } from '#workers/embedding/encoder.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

// Recorded by test/fixtures/build-models.py.
const FIXTURES = join(import.meta.dirname, '../fixtures/models')
const FOREVER = new AbortController().signal
const runtime = openRuntime()

afterAll(() => runtime.close())

function readGolden<T>(name: string): T {
  return JSON.parse(readFileSync(join(FIXTURES, name, 'golden.json'), 'utf8'))
}

function expectClose(vector: Float32Array | undefined, reference: readonly number[]): void {
  for (const [index, value] of reference.entries()) expect(vector?.[index]).toBeCloseTo(value, 4)
}

describe('an encoder with an adapter for each task', async () => {
  const { rows } = readGolden<{ rows: { task: string; text: string; embedding: number[] }[] }>(
    'encoder-tasks',
  )
  const encoder = await openEncoder({ runtime, folder: join(FIXTURES, 'encoder-tasks') })
  afterAll(() => encoder.close())

  it('gives the vectors of the reference for texts of all tasks at once', async () => {
    const vectors = await Promise.all(
      rows.map(async ({ task, text }) => {
        const taskId = encoder.tasks.findIndex(({ name }) => name === task)
        const { instruction = '' } = encoder.tasks[taskId] ?? {}
        return encoder.embed(await encoder.encodeText(instruction + text), FOREVER, taskId)
      }),
    )
    for (const [index, { embedding }] of rows.entries()) expectClose(vectors[index], embedding)
  })
})

describe('static embeddings', async () => {
  const { texts, ids, embeddings } = readGolden<{
    texts: string[]
    ids: number[][]
    embeddings: number[][]
  }>('static')
  const encoder = await openEncoder({ runtime, folder: join(FIXTURES, 'static') })
  afterAll(() => encoder.close())

  it('read texts without markers and without unknown words', async () => {
    expect(await Promise.all(texts.map((text) => encoder.encodeText(text)))).toEqual(ids)
  })

  it('are the means of the reference, and zero for a text without tokens', async () => {
    const vectors = await Promise.all(ids.map((tokenIds) => encoder.embed(tokenIds, FOREVER)))
    for (const [index, embedding] of embeddings.entries()) expectClose(vectors[index], embedding)
    expect(ids.at(-1)).toEqual([])
    expect(Math.hypot(...(vectors.at(-1) ?? [1]))).toBe(0)
  })
})
