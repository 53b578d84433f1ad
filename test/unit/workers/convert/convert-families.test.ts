import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { generate, greedy } from '#test/unit/workers/engine/generate.ts'
import { convertCheckpoint } from '#workers/convert/convert-checkpoint.ts'
import { WEIGHT_FORMS } from '#workers/convert/weight-forms.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { CHECKPOINTS, type FormName } from './checkpoint-folders.ts'

/** Outputs of transformers (see `source` inside), made by test/fixtures/build-models.py. */
interface Golden {
  readonly ids: readonly number[]
  readonly rows: readonly number[]
  readonly logits: readonly (readonly number[])[]
  readonly greedy: readonly number[]
  /** The shorter length of LongRoPE. */
  readonly short?: Omit<Golden, 'short'>
}

const FAMILIES = [
  ...['llama', 'llama3', 'smollm2', 'smollm3', 'mistral', 'qwen2', 'qwen3', 'gemma', 'gemma2'],
  ...['gemma3', 'phi3', 'phi3-long', 'granite', 'olmo2'],
]
const root = mkdtempSync(join(tmpdir(), 'millrace-converted-'))
const runtime = openRuntime()
afterAll(async () => {
  await runtime.close()
  rmSync(root, { recursive: true })
})

describe.each(FAMILIES)('a checkpoint of %s', (name) => {
  const golden = readGolden(name)

  it('gives the logits and the greedy tokens of transformers in fp32', async () => {
    const engine = await convertAndOpen(name, 'fp32', { prefillChunk: 128 })
    try {
      expect(engine.cachePath).toBe('in place')
      for (const one of [golden, golden.short].filter((each) => each !== undefined)) {
        const { logits, tokenIds } = await answer(engine, one)
        expect(distance(logits, one.logits)).toBeLessThan(1e-4)
        expect(tokenIds).toEqual(one.greedy)
      }
    } finally {
      await engine.close()
    }
  })
})

/** The largest error of logits by the largest logit; random weights leave the most. */
const ERRORS_MAX = { fp16: 0.01, int8: 0.08, int4: 0.5 } as const

describe.each(FAMILIES)('a checkpoint of %s', (name) => {
  it.each(['fp16', 'int8', 'int4'] as const)('stays within the error of %s', async (form) => {
    if (name === 'gemma3' && form === 'fp16') return
    const golden = readGolden(name)
    const engine = await convertAndOpen(name, form, { prefillChunk: 128 })
    try {
      const { logits } = await answer(engine, golden)
      const largest = Math.max(...golden.logits.flat().map(Math.abs))
      expect(distance(logits, golden.logits) / largest).toBeLessThan(ERRORS_MAX[form])
    } finally {
      await engine.close()
    }
  })
})

describe.each(['llama', 'gemma2', 'phi3-long'])('a converted %s', (name) => {
  it.each(['fp32', 'int8', 'int4'] as const)('answers alone as in a batch, %s', async (form) => {
    const { ids } = readGolden(name)
    const lengths = [ids.length, 1, 5, 12, 3, ids.length - 2]
    const requests = lengths.map((length, index) => {
      return { promptTokenIds: ids.slice(0, length), maxNewTokens: 20 - index }
    })
    const alone = await convertAndOpen(name, form, { prefillChunk: 16, slots: 1 })
    const together = await convertAndOpen(name, form, { prefillChunk: 7, slots: 6 })
    try {
      const expected: number[][] = []
      for (const request of requests) {
        const own = { ...request, cacheScope: `alone ${request.maxNewTokens}` }
        expected.push((await generate(alone, own)).tokenIds)
      }
      for (const cacheScope of ['batch', 'batch']) {
        const answers = await Promise.all(
          requests.map((request) => generate(together, { ...request, cacheScope })),
        )
        expect(answers.map(({ tokenIds }) => tokenIds)).toEqual(expected)
      }
    } finally {
      await alone.close()
      await together.close()
    }
  })
})

async function convertAndOpen(
  name: string,
  form: FormName,
  options: { readonly prefillChunk: number; readonly slots?: number },
): Promise<TextEngine> {
  const target = join(root, `${name}-${form}-${options.prefillChunk}`)
  const folder = join(CHECKPOINTS, name)
  await convertCheckpoint({ folder, target, form: WEIGHT_FORMS[form] })
  return openTextEngine({ runtime, folder: target, slots: 2, intraOpThreads: 1, ...options })
}

async function answer(
  engine: TextEngine,
  golden: Golden,
): Promise<{ logits: number[][]; tokenIds: number[] }> {
  const all: number[][] = []
  const request = { promptTokenIds: golden.ids, maxNewTokens: golden.greedy.length }
  const onPromptLogits = (_: number, row: ArrayLike<number>) => void all.push(Array.from(row))
  const scored = await generate(engine, { ...request, sampler: greedy, onPromptLogits })
  // Without the logits of the prompt those of its last position alone are computed.
  const plain = await generate(engine, { ...request, cacheScope: 'plain' })
  expect(plain.tokenIds).toEqual(scored.tokenIds)
  expect(all.length).toBe(golden.ids.length)
  return { logits: golden.rows.map((row) => defined(all[row])), tokenIds: scored.tokenIds }
}

function distance(a: readonly (readonly number[])[], b: Golden['logits']): number {
  return Math.max(
    ...a.flatMap((row, index) => {
      return row.map((value, column) => Math.abs(value - defined(b[index]?.[column])))
    }),
  )
}

function readGolden(name: string): Golden {
  return JSON.parse(readFileSync(join(CHECKPOINTS, name, 'golden.json'), 'utf8')) as Golden
}
