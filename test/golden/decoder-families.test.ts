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

/** Folders and the path of their caches, as docs/models.md has it. */
const FAMILIES = [
  ['llama', 'rewritten'],
  ['qwen2', 'rewritten'],
  ['qwen3', 'rewritten'],
  ['gemma', 'rewritten'],
  ['gemma2', 'rewritten'],
  ['gemma3', 'rewritten'],
  ['granite', 'rewritten'],
  ['mistral', 'rewritten'],
  ['phi', 'rewritten'],
  ['phi3', 'rewritten'],
  ['stablelm', 'rewritten'],
  ['olmo2', 'rewritten'],
  ['opt', 'rewritten'],
  ['gpt2', 'rewritten'],
  ['gpt-neox', 'rewritten'],
  ['bloom', 'growing'],
  ['lfm2', 'rewritten'],
  ['mamba', 'in place'],
  ['mamba2', 'in place'],
  ['falcon-mamba', 'in place'],
  ['jamba', 'rewritten'],
  ['granite-4-h', 'rewritten'],
  ['falcon-h1', 'rewritten'],
  ['qwen3-next', 'rewritten'],
  ['mixtral', 'rewritten'],
  ['qwen2-moe', 'rewritten'],
  ['qwen3-moe', 'rewritten'],
  ['olmoe', 'rewritten'],
  ['smollm2', 'rewritten'],
  ['llama-external', 'rewritten'],
  ['llama-opset-23', 'rewritten'],
  ['qwen3-transformers', 'rewritten'],
  ['lfm2-transformers', 'rewritten'],
  ['llama-in-place', 'in place'],
  ['qwen2-in-place', 'in place'],
  ['qwen3-in-place', 'in place'],
  ['smollm2-in-place', 'in place'],
  ['qwen3-moe-in-place', 'in place'],
  ['qwen3-moe-quantized', 'in place'],
  ['gpt-oss-in-place', 'in place'],
] as const

/** The same of decoders whose tokens another graph embeds. */
const EMBEDDED = [
  ['gemma3n', 'growing'],
  ['gemma4', 'growing'],
] as const

const ALL = [
  ...FAMILIES.map((family) => [...family, 'model'] as const),
  ...EMBEDDED.map((family) => [...family, 'decoder_model_merged'] as const),
]

/**
 * Files of one model in other number formats, whose golden numbers are those of the file itself.
 */
const VARIANTS = ['model_fp16', 'model_quantized', 'model_uint8', 'model_int8', 'model_q4']

const runtime = openRuntime()
afterAll(() => runtime.close())

describe.each(ALL)('%s', (name, cachePath, onnxFile) => {
  const golden = readGolden(name)

  it('gives the logits and the greedy tokens of the reference', async () => {
    await check({ name, onnxFile, golden, tolerance: 2e-4, prefillChunk: 128 })
  })

  it('gives the same in chunks of a prompt', async () => {
    await check({ name, onnxFile, golden, tolerance: 2e-4, prefillChunk: 7 })
  })

  it('gives the same tokens alone, beside others of any length and after a shared prefix', async () => {
    await checkTogether(name, golden, { cachePath, onnxFile })
  })
})

describe.each(['llama', 'gpt2', 'gemma', 'qwen3', 'lfm2', 'jamba', 'granite-4-h'])(
  '%s as it was exported',
  (name) => {
    it('gives the same with a growing cache', async () => {
      const form = { onnxFile: 'model', asExported: true, tolerance: 2e-4, prefillChunk: 7 }
      await check({ name, golden: readGolden(name), ...form })
    })
  },
)

describe.each([
  ['lfm2', 'growing', true],
  ['lfm2', 'rewritten', false],
  ['lfm2-transformers', 'rewritten', false],
  ['mamba', 'in place', false],
  ['mamba2', 'in place', false],
  ['falcon-mamba', 'in place', false],
  ['jamba', 'growing', true],
  ['jamba', 'rewritten', false],
  ['granite-4-h', 'growing', true],
  ['falcon-h1', 'rewritten', false],
  ['qwen3-next', 'rewritten', false],
] as const)(
  '%s, whose states belong to one length, on the path %s',
  (name, cachePath, asExported) => {
    const { ids, greedy: answer } = readGolden(name)

    it('gives the same tokens alone and beside others of any length', async () => {
      await checkTogether(name, readGolden(name), { cachePath, asExported })
    })

    it('continues the whole state of a text, not a part of it, and accepts no draft', async () => {
      const longer = [...ids, ...answer, 7, 9, 11]
      const other = [...ids, ...answer.slice(0, 3), 13, 8]
      const folder = join(MODELS, name)
      const options = { runtime, folder, onnxFile: 'model', asExported, intraOpThreads: 1 }
      const engine = await openTextEngine({ ...options, slots: 3 })
      try {
        const ask = (promptTokenIds: readonly number[], cacheScope: string) =>
          generate(engine, {
            promptTokenIds,
            cacheScope,
            maxNewTokens: answer.length,
            propose: () => [1, 2, 3],
          })
        const alone = await Promise.all([ask(longer, 'one'), ask(other, 'two')])
        expect((await ask(ids, 'shared')).tokenIds).toEqual(answer)
        const [partial, whole] = [await ask(other, 'shared'), await ask(longer, 'shared')]
        expect([whole.tokenIds, partial.tokenIds]).toEqual(alone.map(({ tokenIds }) => tokenIds))
        // The last token of an answer is not computed.
        expect(whole.cachedTokens).toBe(ids.length + answer.length - 1)
        expect(partial.cachedTokens).toBe(0)
      } finally {
        await engine.close()
      }
    })
  },
)

describe.each(VARIANTS)('llama in %s', (onnxFile) => {
  it('gives the same as the file in the reference runtime', async () => {
    const golden = readVariant(onnxFile)
    const tolerance = onnxFile === 'model_fp16' ? 2e-2 : 2e-3
    await check({ name: 'llama', onnxFile, golden, tolerance, prefillChunk: 128 })
  })
})

describe.each([
  ['model_fp16_io', 'rewritten'],
  ['model_static', 'growing'],
] as const)('llama in %s', (onnxFile, cachePath) => {
  it('gives the tokens of the reference runtime alone and beside others of any length', async () => {
    const how = { cachePath, onnxFile, prefillChunk: 128 }
    await checkTogether('llama', readVariant(onnxFile), how)
  })
})

async function check(expected: {
  readonly name: string
  readonly onnxFile: string
  readonly golden: Golden
  readonly tolerance: number
  readonly prefillChunk: number
  readonly asExported?: boolean
}): Promise<void> {
  const { name, onnxFile, golden, tolerance, prefillChunk, asExported = false } = expected
  const engine = await openTextEngine({
    runtime,
    folder: join(MODELS, name),
    onnxFile,
    slots: 2,
    prefillChunk,
    asExported,
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

/** The golden prompt and pieces of it, beside each other and continued from each other's caches. */
async function checkTogether(
  name: string,
  golden: Golden,
  how: {
    readonly cachePath: string
    readonly asExported?: boolean
    readonly onnxFile?: string
    readonly prefillChunk?: number
  },
): Promise<void> {
  const folder = join(MODELS, name)
  const { cachePath, asExported = false, onnxFile = 'model', prefillChunk = 16 } = how
  const options = { runtime, folder, onnxFile, asExported, intraOpThreads: 1 }
  const [alone, together] = await Promise.all(
    [1, 6].map((slots) => openTextEngine({ ...options, slots, prefillChunk })),
  )
  try {
    expect(defined(together).cachePath).toBe(cachePath)
    const lengths = [golden.ids.length, 1, 5, 12, 3, golden.ids.length - 2]
    const prompts = lengths.map((length, index) => golden.ids.slice(0, length - (index % 2)))
    const requests = prompts
      .filter(({ length }) => length > 0)
      .map((promptTokenIds, index) => ({ promptTokenIds, maxNewTokens: 20 - index }))
    const expected: number[][] = []
    for (const request of requests) {
      const own = { ...request, cacheScope: `alone ${request.maxNewTokens}` }
      expected.push((await generate(defined(alone), own)).tokenIds)
    }
    expect(expected[0]?.slice(0, golden.greedy.length)).toEqual(golden.greedy)
    const run = async (scope: string): Promise<number[][]> => {
      const results = await Promise.all(
        requests.map((request) => generate(defined(together), { ...request, cacheScope: scope })),
      )
      return results.map(({ tokenIds }) => tokenIds)
    }
    expect(await run('together')).toEqual(expected)
    // Every prompt is a prefix of one that the caches hold.
    expect(await run('together')).toEqual(expected)
  } finally {
    await Promise.all([alone?.close(), together?.close()])
  }
}

/** A file of other number formats of llama, with what ONNX Runtime answers on it. */
function readVariant(onnxFile: string): Golden {
  const file = join(MODELS, 'llama', 'golden.variants.json')
  const { variants } = JSON.parse(readFileSync(file, 'utf8')) as {
    variants: Record<string, Pick<Golden, 'logits' | 'greedy'>>
  }
  return { ...readGolden('llama'), ...variants[onnxFile] }
}

function distance(a: readonly number[], b: readonly number[]): number {
  return Math.max(...a.map((value, index) => Math.abs(value - defined(b[index]))))
}

function readGolden(name: string): Golden {
  return JSON.parse(readFileSync(join(MODELS, name, 'golden.json'), 'utf8')) as Golden
}
