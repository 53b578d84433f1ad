import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { generate, greedy, MODELS } from '#test/unit/workers/engine/generate.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

/** Reference numbers, made by test/fixtures/build-models.py with PyTorch (see `source` inside). */
interface Golden {
  readonly ids: readonly number[]
  readonly rows: readonly number[]
  readonly logits: readonly (readonly number[])[]
  readonly greedy: readonly number[]
}

const FOLDERS = [
  'llama',
  'qwen2',
  'qwen3',
  'gemma',
  'phi',
  'gpt2',
  'gpt-neox',
  'smollm2',
  'llama-external',
  'llama-in-place',
  'qwen2-in-place',
  'qwen3-in-place',
  'smollm2-in-place',
]

/** Files of one model in other number formats, whose golden numbers are those of the file itself. */
const VARIANTS = ['model_fp16', 'model_quantized', 'model_uint8', 'model_int8', 'model_q4']

const runtime = openRuntime()
afterAll(() => runtime.close())

describe.each(FOLDERS)('%s', (name) => {
  const golden = readGolden(name)

  it('gives the logits and the greedy tokens of the reference', async () => {
    await check({ name, onnxFile: 'model', golden, tolerance: 2e-4, prefillChunk: 128 })
  })

  it('gives them in chunks of a prompt as well', async () => {
    await check({ name, onnxFile: 'model', golden, tolerance: 2e-4, prefillChunk: 7 })
  })
})

describe.each(VARIANTS)('llama in %s', (onnxFile) => {
  it('gives what the file gives to the reference runtime', async () => {
    const file = join(MODELS, 'llama', 'golden.variants.json')
    const { variants } = JSON.parse(readFileSync(file, 'utf8')) as {
      variants: Record<string, Pick<Golden, 'logits' | 'greedy'>>
    }
    const golden = { ...readGolden('llama'), ...variants[onnxFile] }
    const tolerance = onnxFile === 'model_fp16' ? 2e-2 : 2e-3
    await check({ name: 'llama', onnxFile, golden, tolerance, prefillChunk: 128 })
  })
})

async function check(expected: {
  readonly name: string
  readonly onnxFile: string
  readonly golden: Golden
  readonly tolerance: number
  readonly prefillChunk: number
}): Promise<void> {
  const { name, onnxFile, golden, tolerance, prefillChunk } = expected
  const engine = await openTextEngine({
    runtime,
    folder: join(MODELS, name),
    onnxFile,
    slots: 2,
    prefillChunk,
    intraOpThreads: 1,
  })
  try {
    const logits: number[][] = []
    const scored = await generate(engine, {
      promptTokenIds: golden.ids,
      maxNewTokens: golden.greedy.length,
      sampler: greedy,
      onPromptLogits: (_position, row) => logits.push(Array.from(row)),
    })
    const plain = await generate(engine, {
      promptTokenIds: golden.ids,
      maxNewTokens: golden.greedy.length,
    })
    expect(logits.length).toBe(golden.ids.length)
    for (const [index, position] of golden.rows.entries()) {
      expect(distance(defined(logits[position]), defined(golden.logits[index]))).toBeLessThan(
        tolerance,
      )
    }
    expect(scored.tokenIds).toEqual(golden.greedy)
    expect(plain.tokenIds).toEqual(golden.greedy)
  } finally {
    await engine.close()
  }
}

function distance(a: readonly number[], b: readonly number[]): number {
  return Math.max(...a.map((value, index) => Math.abs(value - defined(b[index]))))
}

function readGolden(name: string): Golden {
  return JSON.parse(readFileSync(join(MODELS, name, 'golden.json'), 'utf8')) as Golden
}
