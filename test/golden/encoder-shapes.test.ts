import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, afterEach, describe, expect, it } from 'vitest'

import { type Encoder, openEncoder } from '#workers/embedding/encoder.ts'
import { type Model, makeConstant, makeNode } from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

// The model of encoder-families.test.ts with graphs as other exporters leave them.
const MINILM = join(import.meta.dirname, '../fixtures/models/minilm')
const FOREVER = new AbortController().signal
const runtime = openRuntime()
const folders: string[] = []

afterAll(() => runtime.close())
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
})

async function opened(change: (model: Model) => Model): Promise<Encoder> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-shapes-'))
  folders.push(folder)
  cpSync(MINILM, folder, { recursive: true })
  const model = await readModelFile(join(folder, 'onnx/model.onnx'))
  writeFileSync(join(folder, 'onnx/changed.onnx'), writeModel(change(model)))
  return openEncoder({ runtime, folder, onnxFile: 'changed' })
}

const { texts, embeddings } = JSON.parse(readFileSync(join(MINILM, 'golden.json'), 'utf8')) as {
  readonly texts: readonly string[]
  readonly embeddings: readonly (readonly number[])[]
}

async function vectorsTogether(encoder: Encoder): Promise<readonly Float32Array[]> {
  const ids = await Promise.all(texts.map((text) => encoder.encodeText(text)))
  return Promise.all(ids.map((tokenIds) => encoder.embed(tokenIds, FOREVER)))
}

function withShape(model: Model, dims: readonly (number | string)[]): Model {
  const inputs = model.graph.inputs.map((input) => ({ ...input, dims }))
  return { ...model, graph: { ...model.graph, inputs } }
}

function expectEqual(vectors: readonly Float32Array[]): void {
  for (const [index, vector] of vectors.entries()) {
    for (const [at, value] of vector.entries()) {
      expect(value).toBeCloseTo(embeddings[index]?.[at] ?? Number.NaN, 4)
    }
  }
}

describe('a graph of stated shapes', () => {
  it.each([
    ['one row', [1, 's'], 128],
    ['one length', ['b', 16], 16],
    ['one row of one length', [1, 16], 16],
  ] as const)('of %s gives the vectors of the reference', async (_name, dims, contextMax) => {
    const encoder = await opened((model) => withShape(model, dims))
    expect(encoder.contextLength).toBeLessThanOrEqual(contextMax)
    expectEqual(await vectorsTogether(encoder))
    await expect(encoder.encodeText('word '.repeat(600))).rejects.toMatchObject({
      code: 'context_length_exceeded',
    })
    await encoder.close()
  })

  it('of several rows is refused', async () => {
    await expect(opened((model) => withShape(model, [2, 's']))).rejects.toMatchObject({
      message: expect.stringContaining('input_ids must be [batch, length] of any size'),
    })
  })
})

it('a graph has no more tokens than its table of positions', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-shapes-'))
  folders.push(folder)
  cpSync(MINILM, folder, { recursive: true })
  const settings = [
    ['config.json', 'max_position_embeddings'],
    ['sentence_bert_config.json', 'max_seq_length'],
    ['tokenizer_config.json', 'model_max_length'],
  ] as const
  for (const [name, key] of settings) {
    const file = JSON.parse(readFileSync(join(folder, name), 'utf8')) as object
    writeFileSync(join(folder, name), JSON.stringify({ ...file, [key]: 4096 }))
  }
  const encoder = await openEncoder({ runtime, folder, onnxFile: 'model' })
  expect(encoder.contextLength).toBe(64)
  const tokenIds = await encoder.encodeText('word '.repeat(600), encoder.contextLength)
  expect(tokenIds).toHaveLength(64)
  expect(await encoder.embed(tokenIds, FOREVER)).toHaveLength(encoder.dimensions ?? 0)
  await encoder.close()
})

it('texts of different lengths do not share runs of a graph that ignores its mask', async () => {
  const encoder = await opened(({ graph, ...model }) => {
    const nodes = graph.nodes.map((node) => ({
      ...node,
      inputs: node.inputs.map((name) => (name === 'attention_mask' ? 'read' : name)),
    }))
    const constants = [...graph.constants, makeConstant('one', 'int64', [], BigInt64Array.of(1n))]
    const read = makeNode('Max', ['attention_mask', 'one'], 'read')
    return { ...model, graph: { ...graph, constants, nodes: [read, ...nodes] } }
  })
  // Alone, no text has padding.
  expectEqual(await vectorsTogether(encoder))
  await encoder.close()
})
