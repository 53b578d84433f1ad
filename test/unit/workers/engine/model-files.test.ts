import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import { findMaskedStates, readDecoderGraph } from '#workers/engine/decoder-graph.ts'
import { findDecoderFile, readDecoderConfig } from '#workers/engine/model-files.ts'
import { makeNode, makeValue } from '#workers/graph/model.ts'
import { readOperators } from '#workers/graph/operators.ts'

import { MODELS } from './generate.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-model-'))
  mkdirSync(join(folder, 'onnx'))
})
afterEach(() => rmSync(folder, { recursive: true }))

describe('the decoder file', () => {
  it.each([
    [['onnx/model.onnx'], {}, 'onnx/model.onnx'],
    [['onnx/model.onnx', 'onnx/model_quantized.onnx'], {}, 'onnx/model.onnx'],
    [['onnx/model_quantized.onnx', 'onnx/model_q4.onnx'], {}, 'onnx/model_q4.onnx'],
    [['onnx/model_q4.onnx', 'onnx/model_fp16.onnx'], {}, 'onnx/model_q4.onnx'],
    [['onnx/model.onnx', 'onnx/model_q4.onnx'], { onnxFile: 'model_q4' }, 'onnx/model_q4.onnx'],
    [['onnx/model.onnx', 'custom.onnx'], { onnxFile: 'custom.onnx' }, 'custom.onnx'],
    [['model.onnx'], {}, 'model.onnx'],
    [['phi3-cpu-int4.onnx', 'phi3-cpu-int4.onnx.data'], {}, 'phi3-cpu-int4.onnx'],
    [['onnx/decoder_model_merged.onnx'], {}, 'onnx/decoder_model_merged.onnx'],
    [
      ['onnx/decoder_model.onnx', 'onnx/decoder_with_past_model.onnx'],
      {},
      'onnx/decoder_model.onnx',
    ],
    [['prefill.onnx', 'prefill.onnx.data', 'decode.onnx', 'decode.onnx.data'], {}, 'decode.onnx'],
    [
      ['onnx/model_quantized.onnx', 'onnx/model_fp16.onnx'],
      { executionProvider: 'cuda' as const },
      'onnx/model_fp16.onnx',
    ],
  ])('of %j with %j is %s', async (names, options, expected) => {
    for (const name of names) writeFileSync(join(folder, name), '')
    expect(await findDecoderFile(folder, options)).toBe(join(folder, expected))
  })

  it('is named if it is missing', async () => {
    for (const name of ['decoder_first', 'decoder_with_past_model']) {
      writeFileSync(join(folder, 'onnx', `${name}.onnx`), '')
    }
    await expect(findDecoderFile(folder)).rejects.toThrow(
      'only onnx/decoder_first.onnx, onnx/decoder_with_past_model.onnx',
    )
    rmSync(join(folder, 'onnx'), { recursive: true })
    await expect(findDecoderFile(folder)).rejects.toMatchObject({ name: 'ModelLoadError' })
    await expect(findDecoderFile(folder, { onnxFile: 'model_q2' })).rejects.toThrow('model_q2')
  })
})

describe('the context length', () => {
  it.each([
    [{ max_position_embeddings: 512 }, 512],
    [{ n_positions: 1024 }, 1024],
    [{ model_type: 'gemma3', text_config: { max_position_embeddings: 2048 } }, 2048],
    [{ max_position_embeddings: 'many' }, undefined],
  ])('of %j is %s', async (config, expected) => {
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config))
    expect((await readDecoderConfig(folder)).contextLength).toBe(expected)
  })

  it('is read from genai_config.json if only that exists', async () => {
    writeFileSync(join(folder, 'genai_config.json'), '{"model":{"context_length":4096}}')
    expect((await readDecoderConfig(folder)).contextLength).toBe(4096)
  })

  it('needs a readable config.json', async () => {
    await expect(readDecoderConfig(folder)).rejects.toThrow('config.json')
    writeFileSync(join(folder, 'config.json'), '[]')
    await expect(readDecoderConfig(folder)).rejects.toThrow('not a JSON object')
  })
})

describe('operators', () => {
  it.each([
    ['llama-in-place/onnx/model.onnx', ['hasGroupQueryAttention']],
    ['llama/onnx/model.onnx', []],
    ['llama/onnx/model_quantized.onnx', ['hasDynamicQuantization']],
    ['llama/onnx/model_static.onnx', ['hasQuantizedMask']],
  ])('of %s are found', async (name, wanted) => {
    const marks = await readOperators(join(MODELS, name))
    expect(Object.entries(marks).flatMap(([mark, isSet]) => (isSet ? [mark] : []))).toEqual(wanted)
  })
})

describe('states of a decoder', () => {
  const isMasked = (convInput: string): boolean => {
    const nodes = [
      makeNode('Cast', ['attention_mask'], 'mask'),
      makeNode('GroupQueryAttention', ['x', 'mask'], 'attended'),
      makeNode('Mul', ['attended', convInput], 'masked'),
      makeNode('Concat', ['past_key_values.1.conv_state', 'masked'], 'present.1.conv_state'),
    ]
    const inputs = [makeValue('past_key_values.1.conv_state', 'float32', ['b', 32, 3])]
    const graph = { name: 'g', nodes, rest: [], constants: [], inputs, outputs: [] }
    return findMaskedStates({ irVersion: 9, opsets: [], functions: [], rest: [], graph })
  }

  it('depend on the mask if they read it themselves, not behind attention', () => {
    expect([isMasked('x'), isMasked('mask')]).toEqual([false, true])
  })
})

describe('a graph that is not a decoder', () => {
  const marks = {
    hasGroupQueryAttention: false,
    hasDynamicQuantization: false,
    hasQuantizedMask: false,
  }
  const ids = { name: 'input_ids', type: 'int64', dims: ['b', 's'] } as const
  const past = { name: 'past_key_values.0.key', type: 'float32', dims: ['b', 2, 'p', 16] } as const
  const present = { ...past, name: 'present.0.key' }
  const logits = { name: 'logits', type: 'float32', dims: ['b', 's', 320] } as const

  it.each([
    ['logits', [ids, past], [present]],
    ['past_key_values', [ids], [logits]],
    ['past_key_values.0.key', [ids, past], [logits]],
    ['pixel_values', [ids, past, { ...ids, name: 'pixel_values' }], [logits, present]],
    ['per_layer_inputs', [ids, past, { ...past, name: 'per_layer_inputs' }], [logits, present]],
    ['input_ids must be int64', [{ ...ids, type: 'int32' as const }, past], [logits, present]],
    ['input_ids must be [batch, length]', [{ ...ids, dims: [4, 's'] }, past], [logits, present]],
    [
      'past_conv.1 is not a state of [batch, …]',
      [ids, past, { ...past, name: 'past_conv.1' }],
      [logits, present, { ...past, name: 'present_conv.1' }],
    ],
    [
      'an output present_ssm.1',
      [ids, past, { ...past, name: 'past_ssm.1', dims: ['b', 32, 3] }],
      [logits, present],
    ],
    [
      'past_key_values.0.key must be [batch, heads, length, size]',
      [ids, { ...past, dims: ['b', 2, 128, 16] }],
      [logits, present],
    ],
  ])('is refused for its %s', (named, inputs, outputs) => {
    expect(() => readDecoderGraph({ file: 'model.onnx', inputs, outputs }, marks)).toThrow(named)
  })
})
