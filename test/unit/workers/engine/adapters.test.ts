import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterEach, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import type { FittedAdapter } from '#workers/adapters/fit-adapter.ts'
import { readPeftAdapter } from '#workers/adapters/peft-files.ts'
import type { TextEngineOptions } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'

import { generate, greedy } from './generate.ts'
import { AS_EXPORTED, closeEngines, makePrompt, ON_DEVICE, openEngine } from './open-engine.ts'

afterEach(closeEngines)

const ADAPTERS = join(import.meta.dirname, '../../../fixtures/adapters')
const LIMITS = { rankMax: 64, bytesMax: 1 << 20 }
const LLAMA = ['llama/plain', 'llama/ranks', 'llama/head']

/** Made by test/fixtures/build-models.py with PyTorch and PEFT (see `source` inside). */
interface Golden {
  readonly ids: readonly number[]
  readonly files: Readonly<
    Record<string, { rows: number[]; logits: number[][]; greedy: number[]; smallestGap: number }>
  >
}

function readGolden(adapter: string): Golden {
  return JSON.parse(readFileSync(join(ADAPTERS, adapter, 'golden.json'), 'utf8')) as Golden
}

async function load(engine: TextEngine, adapter: string): Promise<FittedAdapter> {
  return engine.fitAdapter(await readPeftAdapter(join(ADAPTERS, adapter), LIMITS))
}

const FORMS: readonly [string, string, Partial<TextEngineOptions>][] = [
  ...LLAMA.flatMap((adapter): [string, string, Partial<TextEngineOptions>][] => [
    [adapter, 'llama-in-place', {}],
    [adapter, 'llama', {}],
    [adapter, 'llama', AS_EXPORTED],
  ]),
  ['llama/plain', 'llama-in-place', ON_DEVICE],
  ['llama/plain', 'llama', { onnxFile: 'model_q4' }],
  ['llama/plain', 'llama-external', {}],
  ['gpt2/fused', 'gpt2', {}],
  ['gpt2/fused', 'gpt2', AS_EXPORTED],
  ['phi3/fused', 'phi3', {}],
]

describe.each(FORMS)('%s on %s, %o', (adapter, model, options) => {
  it.each([7, 128])('gives the logits and tokens of PEFT, prompts in runs of %i', async (chunk) => {
    const engine = await openEngine(model, { ...options, prefillChunk: chunk })
    const { ids, files } = readGolden(adapter)
    const { rows, logits, greedy: expected } = defined(files[options.onnxFile ?? 'model'])
    const fitted = await load(engine, adapter)
    const seen: Float32Array[] = []
    const answer = await generate(engine, {
      promptTokenIds: ids,
      maxNewTokens: expected.length,
      adapter: fitted,
      onPromptLogits: (_position, row) => seen.push(row.slice()),
    })
    expect(answer.tokenIds).toEqual(expected)
    for (const [index, row] of rows.entries()) {
      expect(furthest(defined(seen[row]), defined(logits[index]))).toBeLessThan(2e-3)
    }
  })
})

function furthest(row: Float32Array, expected: readonly number[]): number {
  return Math.max(...expected.map((value, id) => Math.abs(value - defined(row[id]))))
}

describe.each<[string, Partial<TextEngineOptions>]>([
  ['llama-in-place', {}],
  ['llama', {}],
  ['llama', AS_EXPORTED],
  ['llama-in-place', ON_DEVICE],
  ['llama', { ...AS_EXPORTED, ...ON_DEVICE }],
  ['llama-in-place-dynamic', { onnxFile: 'model_quantized' }],
])('rows of several adapters on %s, %o', (model, options) => {
  it('have the same tokens as each alone', async () => {
    const engine = await openEngine(model, { ...options, prefillChunk: 16 })
    const adapters: (FittedAdapter | undefined)[] = [undefined]
    for (const name of [...LLAMA, ...LLAMA]) adapters.push(await load(engine, name))
    const texts = Array.from({ length: 14 }, (_, index) => ({
      adapter: adapters[(index * 5) % adapters.length],
      promptTokenIds: makePrompt(index % 4, 3 + ((index * 7) % 30)),
      maxNewTokens: 24 - index,
    }))
    const run = ({ adapter, ...text }: (typeof texts)[number], cacheScope: string) =>
      generate(engine, { ...text, ...(adapter && { adapter }), cacheScope })
    const alone: number[][] = []
    for (const [index, text] of texts.entries()) {
      alone.push((await run(text, `alone ${index}`)).tokenIds)
    }
    const together = await Promise.all(texts.map((text, index) => run(text, `${index}`)))
    expect(together.map(({ tokenIds }) => tokenIds)).toEqual(alone)
    expect(new Set(alone.map(String)).size).toBeGreaterThan(10)
  })
})

describe('an engine with adapters', () => {
  it('computes the base model as before, to the last bit', async () => {
    const read = async (engine: TextEngine): Promise<number[][]> => {
      const seen: number[][] = []
      const sampler = {
        next(logits: Float32Array) {
          seen.push(Array.from(logits))
          return greedy.next(logits, 0)
        },
      }
      await generate(engine, { promptTokenIds: makePrompt(3, 20), sampler, cacheScope: 'new' })
      return seen
    }
    const plain = await read(await openEngine('llama-in-place'))
    const engine = await openEngine('llama-in-place')
    const adapter = await load(engine, 'llama/plain')
    await generate(engine, { promptTokenIds: makePrompt(3, 20), adapter, cacheScope: 'old' })
    expect(await read(engine)).toEqual(plain)
  })

  it('shares prefixes only between texts of one adapter', async () => {
    const engine = await openEngine('llama-in-place')
    const [first, second] = [await load(engine, 'llama/plain'), await load(engine, 'llama/ranks')]
    const promptTokenIds = makePrompt(2, 30)
    const cached = async (adapter?: FittedAdapter): Promise<number> => {
      const request = { promptTokenIds, cacheScope: 'one', ...(adapter && { adapter }) }
      return (await generate(engine, request)).cachedTokens
    }
    const counts = [await cached(), await cached(first), await cached(second), await cached(first)]
    expect(counts.map((count) => count > 0)).toEqual([false, false, false, true])
  })

  it('accepts drafts of a text with an adapter, which do not change its tokens', async () => {
    const engine = await openEngine('llama-in-place')
    const adapter = await load(engine, 'llama/plain')
    const text = { promptTokenIds: makePrompt(5, 12), maxNewTokens: 20, adapter }
    const { tokenIds } = await generate(engine, { ...text, cacheScope: 'a' })
    const { steps } = engine.stats()
    const propose = (known: readonly number[]): number[] =>
      known.length % 5 === 0 ? [1, 2, 3] : tokenIds.slice(known.length - 12, known.length - 9)
    const drafted = await generate(engine, { ...text, cacheScope: 'b', propose })
    expect(drafted.tokenIds).toEqual(tokenIds)
    expect(engine.stats().steps - steps).toBeLessThan(18)
  })

  it.each([
    ['gpt2/fused', 'llama-in-place', /transformer\.h\.0\.\S+ is of no linear layer of the model/],
    [
      'llama/plain',
      'smollm2',
      /q_proj\.lora_A\.weight has 32 inputs, but the layer of the model 48/,
    ],
    [
      'llama/plain',
      'gemma',
      /k_proj\.lora_B\.weight has 32 outputs, but the layer of the model 16/,
    ],
  ])('refuses %s on %s by the name of a tensor', async (adapter, model, message) => {
    const engine = await openEngine(model)
    await expect(load(engine, adapter)).rejects.toThrow(message)
  })
})
