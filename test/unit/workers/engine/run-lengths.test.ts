import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterEach, describe, expect, it } from 'vitest'

import type { ModelRunner, StepLogits } from '#workers/engine/model-runner.ts'
import { findRunLengths } from '#workers/engine/run-lengths.ts'
import type { Step } from '#workers/engine/scheduler.ts'
import {
  int,
  int64Constant,
  makeConstant,
  makeModel,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { ModelRunError } from '#workers/runtime/errors.ts'

import { generate } from './generate.ts'
import { AS_EXPORTED, closeEngines, makePrompt, ON_DEVICE, openEngine } from './open-engine.ts'

afterEach(closeEngines)

/** How a graph treats a run of several tokens. */
type Graph = 'takes' | 'fails' | 'beginsAnew' | 'losesState' | 'isCoupled'

/** A model whose state is a number that each token halves and adds to. */
function makeRunner(graph: Graph, noise = 0): ModelRunner {
  let state = 0
  let runs = 0
  const compute = (first: number, tokenIds: readonly number[]): void => {
    const isLong = tokenIds.length > 1
    if (isLong && graph === 'fails') throw new ModelRunError('failed', 'Squeeze')
    if (first === 0 || (isLong && graph === 'beginsAnew')) state = 0
    for (const tokenId of tokenIds) state = state / 2 + tokenId
    if (isLong && graph === 'losesState') state = 0
    if (isLong && graph === 'isCoupled') state += 50
  }
  return {
    copyPrefix: () => undefined,
    close: () => undefined,
    run(step: Step): Promise<StepLogits> {
      const [sequence] = 'sequences' in step ? step.sequences : [step.sequence]
      const { numComputed = 0, tokenIds = [] } = sequence ?? {}
      const count = step.kind === 'prefill' ? step.count : 1
      compute(numComputed, tokenIds.slice(numComputed, numComputed + count))
      runs += 1
      const row = Float32Array.of(0, state + noise * runs, 400)
      return Promise.resolve({ numRows: 1, row: () => row })
    },
  }
}

describe('the lengths of runs of a graph with states', () => {
  it.each<[string, Graph, number, boolean, string]>([
    ['are any where all give the same', 'takes', 0, true, 'any'],
    ['are any where the same is rounded otherwise', 'takes', 0.1, true, 'any'],
    ['are single where longer runs fail', 'fails', 0, true, 'single'],
    ['are single where longer runs return another state', 'losesState', 0, true, 'single'],
    ['are whole where longer runs ignore the state before them', 'beginsAnew', 0, true, 'whole'],
    ['are any where activations are quantized by run', 'isCoupled', 0, false, 'any'],
  ])('%s', async (_, graph, noise, isExact, expected) => {
    const runner = makeRunner(graph, noise)
    expect(await findRunLengths(runner, { vocabSize: 320, isExact })).toBe(expected)
  })
})

describe.each(['mamba', 'jamba'])('%s, which takes one token of a text in a run', (name) => {
  it('computes prompts beside each other, each with the answers of others', async () => {
    const engine = await openEngine(name, { slots: 4 })
    const before = engine.stats().steps
    const prompts = [12, 12, 12, 12].map((length, index) => makePrompt(index, length))
    await Promise.all(
      prompts.map((promptTokenIds) => generate(engine, { promptTokenIds, maxNewTokens: 5 })),
    )
    const { steps, promptTokens } = engine.stats()
    // The first tokens alone, all others together.
    expect(steps - before).toBeLessThanOrEqual(4 + 4 + 11 + 4)
    expect(promptTokens).toBe(48)
  })

  it('returns the logits of each position of a prompt', async () => {
    const engine = await openEngine(name, { slots: 2 })
    const positions: number[] = []
    const onPromptLogits = (position: number): void => void positions.push(position)
    await generate(engine, { promptTokenIds: [5, 6, 7, 8], onPromptLogits, maxNewTokens: 2 })
    expect(positions).toEqual([0, 1, 2, 3])
  })
})

describe.each(['mamba', 'mamba2', 'falcon-mamba', 'granite-4-h', 'qwen3-next'])('%s', (name) => {
  it('continues a text of another engine, and frees the slot of a cancelled one', async () => {
    const engine = await openEngine(name, { slots: 2, prefillChunk: 8 })
    const promptTokenIds = makePrompt(3, 21)
    const ask = { promptTokenIds, maxNewTokens: 12 }
    const { tokenIds: whole } = await generate(engine, { ...ask, cacheScope: 'whole' })
    const controller = new AbortController()
    const cancelled = generate(engine, {
      promptTokenIds: makePrompt(4, 30),
      maxNewTokens: 100,
      signal: controller.signal,
      onToken: () => {
        controller.abort()
        return true
      },
    })
    const generatedTokenIds = whole.slice(0, 5)
    const [rest] = await Promise.all([
      generate(engine, { ...ask, generatedTokenIds, cacheScope: 'rest' }),
      expect(cancelled).rejects.toThrow(),
    ])
    expect(rest.tokenIds).toEqual(whole.slice(5))
    // More texts than slots, of which one was cancelled.
    const more = [5, 6, 7].map((number) => makePrompt(number, 9))
    const together = await Promise.all(
      more.map((prompt) => generate(engine, { promptTokenIds: prompt, cacheScope: 'more' })),
    )
    for (const [index, prompt] of more.entries()) {
      const alone = await generate(engine, { promptTokenIds: prompt, cacheScope: `${index}` })
      expect(together[index]?.tokenIds).toEqual(alone.tokenIds)
    }
    expect(engine.stats()).toMatchObject({ active: 0, waiting: 0 })
  })
})

it.each([
  ['granite-4-h', ON_DEVICE],
  ['jamba', ON_DEVICE],
  ['jamba', { ...ON_DEVICE, ...AS_EXPORTED }],
  ['mamba2', ON_DEVICE],
] as const)('%s gives the same with its cache in device memory (%j)', async (name, form) => {
  const requests = [9, 14, 14].map((length, number) => {
    return { promptTokenIds: makePrompt(number, length), maxNewTokens: 8, cacheScope: `${number}` }
  })
  const answers: number[][][] = []
  for (const changes of [{}, form]) {
    const engine = await openEngine(name, { slots: 3, ...changes })
    const ends = await Promise.all(requests.map((request) => generate(engine, request)))
    answers.push(ends.map(({ tokenIds }) => tokenIds))
  }
  expect(answers[1]).toEqual(answers[0])
})

const WORDS = 50
const SIZE = 8

/** A decoder whose state is the sum of embeddings; runs of several tokens ignore the one before. */
function writeStateless(): string {
  const table = (seed: number): Float32Array => {
    return Float32Array.from({ length: WORDS * SIZE }, (_, index) => Math.sin(index * seed + seed))
  }
  const nodes = [
    makeNode('Shape', ['input_ids'], 'shape'),
    makeNode('Gather', ['shape', 'one'], 'length', { attributes: { axis: int(0) } }),
    makeNode('Equal', ['length', 'one'], 'is_single'),
    makeNode('Cast', ['is_single'], 'factor', { attributes: { to: int(1) } }),
    makeNode('Mul', ['past_ssm.0', 'factor'], 'before'),
    makeNode('Unsqueeze', ['before', 'one'], 'before_rows'),
    makeNode('Gather', ['words', 'input_ids'], 'embedded', { attributes: { axis: int(0) } }),
    makeNode('CumSum', ['embedded', 'one_axis'], 'sums'),
    makeNode('Add', ['sums', 'before_rows'], 'states'),
    makeNode('MatMul', ['states', 'head'], 'logits'),
    makeNode('Gather', ['states', 'last'], 'present_ssm.0', { attributes: { axis: int(1) } }),
  ]
  const model = makeModel({
    name: 'stateless',
    nodes,
    constants: [
      int64Constant('one', [1]),
      makeConstant('one_axis', 'int64', [], BigInt64Array.of(1n)),
      makeConstant('last', 'int64', [], BigInt64Array.of(-1n)),
      makeConstant('words', 'float32', [WORDS, SIZE], table(1)),
      makeConstant('head', 'float32', [SIZE, WORDS], table(2)),
    ],
    inputs: [
      makeValue('input_ids', 'int64', ['batch', 'length']),
      makeValue('past_ssm.0', 'float32', ['batch', SIZE]),
    ],
    outputs: [
      makeValue('logits', 'float32', ['batch', 'length', WORDS]),
      makeValue('present_ssm.0', 'float32', ['batch', SIZE]),
    ],
  })
  const folder = mkdtempSync(join(tmpdir(), 'millrace-stateless-'))
  mkdirSync(join(folder, 'onnx'))
  writeFileSync(join(folder, 'onnx', 'model.onnx'), writeModel(model))
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ max_position_embeddings: 20_000 }))
  return folder
}

it('computes whole prompts if longer runs ignore the state before them', async () => {
  const folder = writeStateless()
  try {
    const engine = await openEngine('.', { folder, slots: 2, prefillChunk: 4 })
    expect(engine.context).toMatchObject({ contextLength: 8192, limitedBy: 'wholePrompts' })
    const promptTokenIds = makePrompt(1, 11).map((tokenId) => tokenId % WORDS)
    const before = engine.stats().steps
    const { tokenIds } = await generate(engine, { promptTokenIds, maxNewTokens: 6 })
    expect(engine.stats().steps - before).toBe(6)
    const next = [...promptTokenIds, ...tokenIds, 3, 4, 5]
    const again = await generate(engine, { promptTokenIds: next, maxNewTokens: 6 })
    expect(again.cachedTokens).toBe(0)
    const other = { promptTokenIds: next, maxNewTokens: 6, cacheScope: 'other' }
    expect(again.tokenIds).toEqual((await generate(engine, other)).tokenIds)
  } finally {
    await closeEngines()
    rmSync(folder, { recursive: true })
  }
})
