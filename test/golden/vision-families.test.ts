import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import { defined } from '#shared/json.ts'
import { generate, MODELS } from '#test/unit/workers/engine/generate.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openImage } from '#workers/image/image-file.ts'
import { createCompletionModel } from '#workers/processors/completion-model.ts'
import { type PreparedPrompt, preparePrompt } from '#workers/processors/completion-prompt.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { loadTextModel } from '#workers/text/text-model.ts'
import { pixelValues } from '#workers/vision/pixel-values.ts'
import { openVisionModel } from '#workers/vision/vision-model.ts'
import { readVisionRules } from '#workers/vision/vision-rules.ts'

/** Reference numbers, made by test/fixtures/build-models.py with transformers (see `source`). */
interface Golden {
  readonly images: readonly { readonly dims: readonly number[]; readonly pixels: string }[]
  readonly cases: readonly {
    readonly images: readonly number[]
    readonly text: string
    readonly ids: readonly number[]
    readonly greedy: readonly number[]
  }[]
}

const FAMILIES = [
  'llava',
  'llava-onevision',
  'smolvlm',
  'qwen2-vl',
  'qwen2.5-vl',
  'qwen3-vl',
  'gemma3-vision',
]
const FILES = (readJson('vision-images.json') as readonly string[]).map((file) => {
  return Buffer.from(file, 'base64')
})

const runtime = openRuntime()
afterAll(() => runtime.close())

describe.each(FAMILIES)('%s', (name) => {
  const golden = readJson(join(name, 'golden.json')) as Golden

  it('reads pixels as transformers does, within 1 ÷ 255', async () => {
    const rules = await readVisionRules(join(MODELS, name))
    const { mean, std, patch } = rules.pixels
    for (const [index, { dims, pixels }] of golden.images.entries()) {
      const image = await openImage(defined(FILES[index]), 'image')
      const values = pixelValues(await image.colours(), rules.layout(image, 'high'), rules.pixels)
      expect(values.data.length).toBe(dims.reduce((product, dim) => product * dim, 1))
      const expected = Buffer.from(pixels, 'base64')
      const perChannel =
        patch === undefined
          ? defined(values.dims[2]) * defined(values.dims[3])
          : patch.frames * patch.side ** 2
      const furthest = values.data.reduce((most, value, at) => {
        const channel = Math.floor(at / perChannel) % 3
        const plain = (value * defined(std[channel]) + defined(mean[channel])) * 255
        return Math.max(most, Math.abs(plain - defined(expected[at])))
      }, 0)
      expect(furthest).toBeLessThan(1.01)
    }
  })
})

describe.each([
  ['llava', 'rewritten'],
  ['smolvlm', 'rewritten'],
  ['qwen2-vl', 'rewritten'],
  ['qwen2-vl', 'growing'],
  ['qwen2.5-vl', 'rewritten'],
  ['qwen3-vl', 'rewritten'],
  ['gemma3-vision', 'rewritten'],
  ['llava-onevision', 'rewritten'],
])('%s, %s', (name, cachePath) => {
  const golden = readJson(join(name, 'golden.json')) as Golden
  let model: Awaited<ReturnType<typeof openModel>>
  beforeAll(async () => {
    model = await openModel(name, cachePath === 'growing')
  })
  afterAll(() => model.close())

  it('gives the tokens of the reference alone, in chunks and together', async () => {
    const { engine } = model.completion
    expect(engine.cachePath).toBe(cachePath)
    const prompts = await Promise.all(golden.cases.map((_, index) => prepare(index)))
    for (const [index, prompt] of prompts.entries()) {
      expect(prompt.tokenIds).toEqual(defined(golden.cases[index]).ids)
      expect(await answer(prompt, `alone ${index}`)).toEqual(greedyOf(index))
    }
    const together = prompts.map((prompt, index) => answer(prompt, `together ${index}`))
    expect(await Promise.all(together)).toEqual(golden.cases.map(({ greedy }) => greedy))
  })

  it('reuses the prefix of the same image and no other', async () => {
    const [first, other] = [await prepare(0), await prepare(0, [2])]
    const { cachedTokens: none } = await run(first, 'reuse')
    const again = await run(first, 'reuse')
    const changed = await run(other, 'reuse')
    expect(none).toBe(0)
    expect(again.cachedTokens).toBeGreaterThan(first.tokenIds.length / 2)
    expect(again.tokenIds).toEqual(greedyOf(0))
    expect(changed.cachedTokens).toBeLessThan(8)
    expect(changed.tokenIds).toEqual((await run(other, 'apart')).tokenIds)
  })

  function greedyOf(index: number): readonly number[] {
    return defined(golden.cases[index]).greedy
  }

  function prepare(index: number, files?: readonly number[]): Promise<PreparedPrompt> {
    const { images, text } = defined(golden.cases[index])
    const shown = (files ?? images).map((file) => ({ at: 0, key: String(file), path: 'image' }))
    const message = { role: 'user', content: text, ...(shown.length > 0 && { images: shown }) }
    const prompt = { form: 'chat', messages: [message as never] } as const
    return preparePrompt(model.completion, prompt, null)
  }

  function run(prompt: PreparedPrompt, cacheScope: string) {
    const read = prompt.embedded ?? { promptTokenIds: prompt.tokenIds }
    const maxNewTokens = greedyOf(0).length
    return generate(model.completion.engine, { ...read, maxNewTokens, cacheScope })
  }

  async function answer(prompt: PreparedPrompt, scope: string): Promise<readonly number[]> {
    return (await run(prompt, scope)).tokenIds
  }
})

async function openModel(name: string, asExported: boolean) {
  const folder = join(MODELS, name)
  const session = { intraOpThreads: 1 }
  const options = { runtime, folder, slots: 3, prefillChunk: 7, asExported, ...session }
  const engine = await openTextEngine(options)
  const encoder = await openVisionModel({
    runtime,
    session,
    rules: await readVisionRules(folder),
    encoderFile: join(folder, 'onnx/vision_encoder.onnx'),
    embeddingSize: defined(engine.embeddingSize),
  })
  const storage = {
    get: async (key: string) => {
      const file = defined(FILES[Number(key)])
      return { body: [file], totalBytes: file.length }
    },
  }
  const vision = { encoder, storage: storage as never }
  const completion = createCompletionModel(engine, await loadTextModel(folder, systemClock), {
    vision,
  })
  return {
    completion,
    async close() {
      await engine.close()
      await encoder.close()
    },
  }
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(join(MODELS, path), 'utf8'))
}
