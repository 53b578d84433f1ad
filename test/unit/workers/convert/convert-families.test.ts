import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { convertCheckpoint } from '#workers/convert/convert-checkpoint.ts'
import { WEIGHT_FORMS } from '#workers/convert/weight-forms.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { generate, greedy } from '../engine/generate.ts'

/** What transformers answers (see `source` inside), made by test/fixtures/build-models.py. */
interface Golden {
  readonly ids: readonly number[]
  readonly rows: readonly number[]
  readonly logits: readonly (readonly number[])[]
  readonly greedy: readonly number[]
  /** Of LongRoPE, for a text that stays short. */
  readonly short?: Omit<Golden, 'short'>
}

const CHECKPOINTS = join(import.meta.dirname, '../../../fixtures/checkpoints')
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

async function convertAndOpen(
  name: string,
  form: keyof typeof WEIGHT_FORMS,
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
