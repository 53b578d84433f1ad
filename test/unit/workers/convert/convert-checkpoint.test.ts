import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { generate } from '#test/unit/workers/engine/generate.ts'
import { readWeights } from '#workers/adapters/read-weights.ts'
import { findLinearModules } from '#workers/adapters/target-modules.ts'
import { convertCheckpoint } from '#workers/convert/convert-checkpoint.ts'
import { quantizeRows } from '#workers/convert/quantize-blocks.ts'
import { WEIGHT_FORMS } from '#workers/convert/weight-forms.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { readSafetensors, type StoredTensor } from '#workers/tensor/safetensors.ts'
import { loadTextModel } from '#workers/text/text-model.ts'
import { readTrainingGraph } from '#workers/training/run-training.ts'

import { type Config, changeConfig, changeTensors, openCheckpoints } from './checkpoint-folders.ts'

const { root, copyOf, newFolder, convert } = openCheckpoints()
const runtime = openRuntime()
afterAll(async () => {
  await runtime.close()
  rmSync(root, { recursive: true })
})

describe('a converted folder', () => {
  it('has graph, weights, configuration and tokenizer, and nothing else', async () => {
    const folder = copyOf('llama')
    const target = join(newFolder(), 'deeper', 'out')
    const seen: number[] = []
    const onProgress = ({ doneBytes }: { doneBytes: number }) => void seen.push(doneBytes)
    await convertCheckpoint({ folder, target, form: WEIGHT_FORMS.int8, onProgress })
    expect(readdirSync(target, { recursive: true, encoding: 'utf8' }).toSorted()).toEqual([
      ...['config.json', 'generation_config.json', 'golden.json', 'onnx'],
      ...['onnx/model.onnx', 'onnx/model.onnx.data', 'tokenizer.json', 'tokenizer_config.json'],
    ])
    expect(readdirSync(dirname(target))).toEqual(['out'])
    expect(seen).toEqual(seen.toSorted((a, b) => a - b))
    await loadTextModel(target, { now: () => 0, monotonic: () => 0 })
  })

  it('replaces the remains of a killed conversion', async () => {
    const folder = copyOf('qwen3')
    const target = join(dirname(folder), 'out')
    mkdirSync(`${target}.part/onnx`, { recursive: true })
    writeFileSync(`${target}.part/left`, 'x')
    await convert(folder)
    expect(existsSync(join(target, 'left'))).toBe(false)
    expect(readdirSync(dirname(target)).toSorted()).toEqual(['checkpoint', 'out'])
  })

  it('is never written over another', async () => {
    const folder = copyOf('qwen3')
    mkdirSync(join(dirname(folder), 'out'))
    await expect(convert(folder)).rejects.toThrow('exists already')
    expect(readdirSync(join(dirname(folder), 'out'))).toEqual([])
  })

  it.each([
    ['int8', 1 / 127],
    ['int4', 1 / 7],
  ] as const)('has the weights of the checkpoint under its names, %s', async (form, step) => {
    const folder = copyOf('llama3')
    const target = join(dirname(folder), 'out')
    await convert(folder, form)
    const file = join(target, 'onnx/model.onnx')
    const model = await readModelFile(file)
    const view = new GraphView(model.graph)
    const tensors = await readSafetensors(join(folder, 'model.safetensors'))
    const context = { runtime, file, folder: dirname(file), executionProvider: 'cpu' } as const
    const modules = findLinearModules(view)
    expect(modules.length).toBe(2 * 7 + 1)
    for (const module of modules) {
      const weights = await readWeights(context, { view, model }, module)
      const { dims, values } = tensors.get(`${module.path}.weight`) as StoredTensor
      const [outSize = 0, inSize = 0] = dims
      expect([module.outSize, module.inSize]).toEqual([outSize, inSize])
      const bits = module.path === 'lm_head' ? 1 / 127 : step
      for (let index = 0; index < values.length; index += 1) {
        const [row, column] = [Math.floor(index / inSize), index % inSize]
        const from = index - (column % 32)
        const block = values.subarray(from, Math.min(from + 32, (row + 1) * inSize))
        const largest = Math.max(...block.map(Math.abs))
        const error = Math.abs(
          (values[index] as number) - (weights[column * outSize + row] as number),
        )
        expect(error).toBeLessThanOrEqual(largest * bits + 1e-6)
      }
    }
  })

  it.each(['fp32', 'int8'] as const)('takes adapters and can be fine-tuned, %s', async (form) => {
    const folder = copyOf('qwen3')
    await convert(folder, form)
    const target = join(dirname(folder), 'out')
    const { graph } = await readTrainingGraph({ folder: target, runtime }, { rank: 2, alpha: 4 })
    expect(graph.matrices.length).toBe(2 * 7)
    const engine = await openTextEngine({ runtime, folder: target, slots: 1, intraOpThreads: 1 })
    try {
      const matrix = (length: number) => Float32Array.from({ length }, (_, at) => Math.sin(at + 1))
      const sizes = { rank: 2, scale: 1, inSize: 48, outSize: 32 }
      const low = { ...sizes, a: matrix(2 * 48), b: matrix(32 * 2) }
      const modules = new Map([['model.layers.1.mlp.down_proj', low]])
      const request = { promptTokenIds: [5, 6, 7, 8], maxNewTokens: 8 }
      const plain = await generate(engine, request)
      const adapter = await engine.fitAdapter({ modules })
      const adapted = await generate(engine, { ...request, adapter })
      expect(adapted.tokenIds).not.toEqual(plain.tokenIds)
    } finally {
      await engine.close()
    }
  })

  it('of a model of images and text has only its decoder', async () => {
    const folder = copyOf('gemma3')
    changeConfig(folder, ({ architectures: _, max_position_embeddings: __, ...inner }) => ({
      architectures: ['Gemma3ForConditionalGeneration'],
      model_type: 'gemma3',
      text_config: inner,
      vision_config: { hidden_size: 8 },
    }))
    await changeTensors(folder, (tensors) => {
      for (const [name, tensor] of [...tensors]) {
        tensors.delete(name)
        tensors.set(`language_model.${name}`, tensor)
      }
      tensors.set('vision_tower.weight', { dims: [2], values: new Float32Array(2) })
    })
    // Tables of its 131,072 usual positions would take a while.
    changeConfig(folder, ({ text_config: inner, ...rest }) => ({
      ...rest,
      text_config: { ...(inner as Config), max_position_embeddings: 64 },
    }))
    await convert(folder)
    const config = JSON.parse(
      readFileSync(join(dirname(folder), 'out/config.json'), 'utf8'),
    ) as Config
    expect(config).toMatchObject({ model_type: 'gemma3_text', max_position_embeddings: 64 })
    expect(config.vision_config).toBeUndefined()
  })
})

describe('blocks', () => {
  const row = (of: (index: number) => number) =>
    Float32Array.from({ length: 64 }, (_, at) => of(at))
  const errorOf = (values: Float32Array, bits: 4 | 8): number => {
    const { codes, scales } = quantizeRows(values, values.length, bits)
    return values.reduce((sum, value, at) => {
      const byte = codes[bits === 8 ? at : at >> 1] as number
      const code = bits === 8 ? byte - 128 : ((at % 2 === 0 ? byte : byte >> 4) & 15) - 8
      return sum + (value - code * (scales[at >> 5] as number)) ** 2
    }, 0)
  }

  it.each([
    ['zeros', row(() => 0)],
    ['numbers too small to divide by', row((at) => (at % 2) * 1e-45)],
    ['multiples of one number', row((at) => 0.25 * ((at % 15) - 8))],
  ])('keep %s', (_, values) => {
    expect(errorOf(values, 8)).toBeLessThan(1e-12)
    expect(errorOf(values, 4)).toBeLessThan(1e-12)
  })

  it('have a smaller error than rounding by the largest element', () => {
    const values = row((at) => Math.sin(at * 12.9898) * Math.cos(at * 78.233))
    const plain = [0, 32].reduce((sum, from) => {
      const block = values.slice(from, from + 32)
      const extreme = block.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a))
      const scale = extreme / -8
      return block.reduce((total, value) => {
        const code = Math.min(Math.max(Math.round(value / scale), -8), 7)
        return total + (value - code * scale) ** 2
      }, sum)
    }, 0)
    expect(errorOf(values, 4)).toBeLessThan(plain * 0.98)
    expect(errorOf(values, 8)).toBeLessThan(plain / 100)
  })
})
