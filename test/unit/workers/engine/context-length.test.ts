import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterEach, describe, expect, it } from 'vitest'

import type { CatalogueModel } from '#shared/catalogue.ts'
import { systemClock } from '#shared/clock.ts'
import {
  type ContextDemand,
  chooseContext,
  chooseSlotsMax,
  findMemoryBytes,
} from '#workers/engine/context-length.ts'
import { type OpenTools, PROCESSORS } from '#workers/processors/index.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { generate, greedy, MODELS } from './generate.ts'
import { AS_EXPORTED, closeEngines, makePrompt, ON_DEVICE, openEngine } from './open-engine.ts'

const GIB = 2 ** 30
const KIB = 2 ** 10

// 16 slots take 1 MiB for each position, so that the cache of n KiB positions takes n GiB.
const DEMAND: ContextDemand = {
  modelLength: 32 * KIB,
  tableLength: Infinity,
  wantedMax: undefined,
  slots: 16,
  positionBytes: 64 * KIB,
  stateBytes: 0,
  runBytes: 0,
  weightBytes: 2 * GIB,
  memoryBytes: 66 * GIB,
}

describe('the context of a model', () => {
  it.each<[string, Partial<ContextDemand>, number, string]>([
    ['is its own where half of the memory beside the weights holds it', {}, 32, 'model'],
    ['is what fits in less memory', { memoryBytes: 65 * GIB }, 31, 'memory'],
    ['is shorter beside larger weights', { weightBytes: 4 * GIB }, 31, 'memory'],
    ['is shorter with more slots', { slots: 32 }, 16, 'memory'],
    ['is longer with fewer slots', { slots: 4, modelLength: 128 * KIB }, 128, 'model'],
    ['leaves memory for runs', { runBytes: 1024 * KIB }, 16, 'memory'],
    ['leaves memory for states', { stateBytes: GIB / 2 }, 16, 'memory'],
    ['is 8,192 at least', { memoryBytes: GIB }, 8, 'memory'],
    ['is a short model’s own with any memory', { modelLength: KIB, memoryBytes: 0 }, 1, 'model'],
    ['is what the operator wants', { wantedMax: 20 * KIB }, 20, 'maxContextTokens'],
    [
      'is what the operator wants also in little memory',
      { wantedMax: 20 * KIB, memoryBytes: GIB },
      20,
      'maxContextTokens',
    ],
    ['is never above the model’s own', { wantedMax: 64 * KIB, memoryBytes: GIB }, 32, 'model'],
    ['is that of the tables of the graph', { tableLength: 4 * KIB, memoryBytes: 0 }, 4, 'tables'],
    [
      'is the memory’s below that of the tables',
      { tableLength: 31 * KIB, memoryBytes: GIB },
      8,
      'memory',
    ],
    ['is 8,192 in the memory of a device', { fixedBy: 'device' }, 8, 'device'],
    [
      'is what the operator wants in the memory of a device',
      { fixedBy: 'device', wantedMax: 16 * KIB },
      16,
      'maxContextTokens',
    ],
    ['is 8,192 where prompts run whole', { fixedBy: 'wholePrompts' }, 8, 'wholePrompts'],
  ])('%s', (_, changes, kibiTokens, limitedBy) => {
    const demand = { ...DEMAND, ...changes }
    const contextLength = kibiTokens * KIB
    const cacheBytesMax = demand.slots * (demand.positionBytes * contextLength + demand.stateBytes)
    expect(chooseContext(demand)).toEqual({ contextLength, limitedBy, cacheBytesMax })
  })

  it.each<[string, Partial<ContextDemand>, number, number]>([
    ['are as many as wanted', {}, 64, 0],
    ['have no more addresses than there is memory', { memoryBytes: 40 * GIB }, 40, 0],
    ['are never fewer than without load', { memoryBytes: GIB }, 16, 0],
    ['are not added where states alone take memory', { positionBytes: 0, stateBytes: GIB }, 16, 0],
    ['count their states as positions', { stateBytes: GIB }, 22, 32 * KIB],
  ])('leaves slots under load that %s', (_, changes, slotsMax, statePositions) => {
    const size = { contextLength: 16 * KIB, slotsWanted: 64 }
    expect(chooseSlotsMax({ ...DEMAND, ...changes }, size)).toEqual({ slotsMax, statePositions })
  })

  it('follows from memory that exists', () => {
    expect(findMemoryBytes()).toBeGreaterThan(64 * 2 ** 20)
    expect(findMemoryBytes()).toBeLessThan(2 ** 50)
  })
})

const folders: string[] = []

afterEach(async () => {
  await closeEngines()
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
})

/** A copy of a tiny model whose config.json says another length. */
function copyWithLength(name: string, positions: number, changes: object = {}): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-context-'))
  folders.push(folder)
  cpSync(join(MODELS, name), folder, { recursive: true })
  const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object
  const changed = { ...config, ...changes, max_position_embeddings: positions }
  writeFileSync(join(folder, 'config.json'), JSON.stringify(changed))
  return folder
}

describe('an engine of a model with 32,768 positions', () => {
  it('continues a text far beyond 8,192 tokens as the exported graph does', async () => {
    const folder = copyWithLength('llama', 32_768)
    const promptTokenIds = Array.from({ length: 9000 }, (_, index) => {
      return 5 + ((index * index * 7 + index * 17 + (index >> 5)) % 300)
    })
    const answers: { tokenIds: number[]; logits: Float32Array | undefined }[] = []
    for (const form of [{ prefillChunk: 500 }, { prefillChunk: 512, ...AS_EXPORTED }]) {
      const engine = await openEngine('.', { folder, ...form })
      expect(engine.context).toMatchObject({ contextLength: 32_768, limitedBy: 'model' })
      let logits: Float32Array | undefined
      const sampler = {
        next(row: Float32Array, position: number) {
          logits ??= row.slice()
          return greedy.next(row, position)
        },
      }
      const { tokenIds } = await generate(engine, { promptTokenIds, sampler, maxNewTokens: 8 })
      answers.push({ tokenIds, logits })
    }
    const [rewritten, exported] = answers
    expect(rewritten?.tokenIds).toEqual(exported?.tokenIds)
    const distances = rewritten?.logits?.map((value, index) => {
      return Math.abs(value - (exported?.logits?.[index] ?? Number.NaN))
    })
    expect(Math.max(...(distances ?? [Number.NaN]))).toBeLessThan(1e-4)
  })

  it('has a shorter context if memory does not hold all slots at that length', async () => {
    const folder = copyWithLength('llama', 32_768)
    const engine = await openEngine('.', { folder, memoryBytes: 340_000_000 })
    // 16 slots of 512 bytes each, and scores of four heads and 128 queries.
    expect(engine.context).toEqual({
      contextLength: 16_384,
      limitedBy: 'memory',
      cacheBytesMax: 16 * 512 * 16_384,
    })
    const growing = await openEngine('.', { folder, memoryBytes: 680_000_000, ...AS_EXPORTED })
    expect(growing.context).toMatchObject({ contextLength: 16_384, limitedBy: 'memory' })
    const onDevice = await openEngine('.', { folder, ...ON_DEVICE })
    expect(onDevice.context).toMatchObject({ contextLength: 8192, limitedBy: 'device' })
  })

  it('has no more positions than a window that measuring does not find', async () => {
    const folder = copyWithLength('mistral', 262_144, { sliding_window: 200_000 })
    const engine = await openEngine('.', { folder, slots: 1, ...AS_EXPORTED })
    expect(engine.contextLength).toBe(200_000)
  })

  it.each([
    ['rotations', 'llama-in-place', {}],
    ['rotations in two branches', 'llama-long-rope', {}],
    ['learned positions', 'gpt2', { n_positions: 32_768 }],
    ['learned positions that begin at 2', 'opt', {}],
  ])('has no more positions than the %s of the graph', async (_, name, changes) => {
    for (const form of [{}, AS_EXPORTED]) {
      const folder = copyWithLength(name, 32_768, changes)
      const engine = await openEngine('.', { folder, slots: 2, ...form })
      expect(engine.context).toMatchObject({ contextLength: 256, limitedBy: 'tables' })
      const promptTokenIds = makePrompt(1, 250)
      expect(await generate(engine, { promptTokenIds })).toMatchObject({ reason: 'length' })
    }
  })
})

describe('an engine of a model with states', () => {
  it('counts them beside the cache', async () => {
    const engine = await openEngine('granite-4-h', { slots: 4 })
    // One head of keys and of values of 16, the last columns of 80 channels, and 4 heads of 16 × 8.
    const bytes = 4 * (2 * 16 * 256 + 80 * 4 + 4 * 16 * 8)
    expect(engine.context).toEqual({
      contextLength: 256,
      limitedBy: 'model',
      cacheBytesMax: 4 * bytes,
    })
  })

  it('has the length that the operator sets if it has no attention and states none', async () => {
    const usual = await openEngine('mamba2')
    expect(usual.context).toMatchObject({ contextLength: 2048, limitedBy: 'model' })
    const longer = await openEngine('mamba2', { maxContextTokens: 5000 })
    expect(longer.contextLength).toBe(5000)
  })
})

it('logs the chosen context of each text model, within the memory of the worker', async () => {
  const runtime = openRuntime()
  const entries: object[] = []
  const log = { info: (fields: object) => void entries.push(fields) }
  const config = { intraOpThreads: 1, memoryBytesMax: 340_000_000 }
  const model = { id: 'long', kind: 'completion', capabilities: [], options: {} }
  const row = PROCESSORS.find(({ kind }) => kind === 'completion')
  const folder = copyWithLength('llama', 32_768)
  const tools = {
    folder,
    slots: 16,
    slotsMax: 64,
    runtime,
    config,
    clock: systemClock,
    log,
    fetchOptions: {},
  }
  const opened = await row?.open(model as unknown as CatalogueModel, tools as unknown as OpenTools)
  await opened?.close()
  await runtime.close()
  expect(opened?.contextLength).toBe(16_384)
  expect(entries).toContainEqual({
    operation: 'model.context',
    modelId: 'long',
    slots: 16,
    contextLength: 16_384,
    // 40 slots have as many addresses as the worker may have memory.
    slotsMax: 40,
    limitedBy: 'memory',
    cacheBytesMax: 16 * 512 * 16_384,
    cachePath: 'rewritten',
  })
})
