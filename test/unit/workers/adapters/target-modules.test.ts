import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { findLinearModules, moduleKey } from '#workers/adapters/target-modules.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { makeModel, makeNode, makeValue } from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'

const LLAMA = [
  ...['self_attn.q_proj 32x64', 'self_attn.k_proj 32x32', 'self_attn.v_proj 32x32'],
  ...['self_attn.o_proj 64x32', 'mlp.gate_proj 32x64', 'mlp.up_proj 32x64', 'mlp.down_proj 64x32'],
]
const BLOOM = [
  ...['self_attention.query_key_value 32x96', 'self_attention.dense 32x32'],
  ...['mlp.dense_h_to_4h 32x128', 'mlp.dense_4h_to_h 128x32'],
]
const inLayers = (stem: string, names: readonly string[], head = ['lm_head 32x320']): string[] =>
  [0, 1].flatMap((layer) => names.map((name) => `${stem}.${layer}.${name}`)).concat(head)

describe('linear modules of a decoder', () => {
  it.each<[string, string, readonly string[]]>([
    ['llama/onnx/model.onnx', 'matrix', inLayers('model.layers', LLAMA)],
    ['llama/onnx/model_q4.onnx', 'blocks', inLayers('model.layers', LLAMA)],
    ['llama/onnx/model_quantized.onnx', 'integers', inLayers('model.layers', LLAMA)],
    ['llama-in-place/onnx/model.onnx', 'matrix', inLayers('model.layers', LLAMA)],
    [
      'llama-in-place-dynamic/onnx/model_quantized.onnx',
      'integers',
      inLayers('model.layers', LLAMA),
    ],
    ['bloom/onnx/model.onnx', 'matrix', inLayers('transformer.h', BLOOM)],
    [
      'phi3/onnx/model.onnx',
      'matrix',
      inLayers('model.layers', [
        ...['self_attn.qkv_proj 32x96', 'self_attn.o_proj 32x32'],
        ...['mlp.gate_up_proj 32x128', 'mlp.down_proj 64x32'],
      ]),
    ],
  ])('of %s have their paths in PyTorch', async (file, form, expected) => {
    const { graph } = await readModelFile(join(MODELS, file))
    const found = findLinearModules(new GraphView(graph))
    expect(found.map((module) => `${module.path} ${module.inSize}x${module.outSize}`)).toEqual(
      expected,
    )
    expect(new Set(found.map((module) => module.form))).toEqual(new Set([form]))
  })

  it('are named after a weight of another exporter', () => {
    const weight = 'model.layers.3.attn.qkv_proj.MatMul.weight_Q4'
    const attributes = { K: { kind: 'int', value: 8n }, N: { kind: 'int', value: 4n } } as const
    const node = makeNode('MatMulNBits', ['x', weight, 's'], 'y', {
      domain: 'com.microsoft',
      attributes,
    })
    const constant = {
      name: weight,
      onnxType: 2,
      dims: [4, 1, 4],
      data: { kind: 'bytes', bytes: new Uint8Array(16) },
    } as const
    const { graph } = makeModel({
      name: 'test',
      nodes: [node],
      constants: [constant],
      inputs: [makeValue('x', 'float32', [1, 8])],
      outputs: [makeValue('y', 'float32', [1, 4])],
    })
    const [module] = findLinearModules(new GraphView(graph))
    expect(module).toMatchObject({
      path: 'model.layers.3.self_attn.qkv_proj',
      inSize: 8,
      outSize: 4,
      form: 'blocks',
      input: 'x',
      output: 'y',
    })
  })

  it('has the shape of a weight that is scaled in the graph', () => {
    const nodes = [
      makeNode('Cast', ['w'], 'wide', { attributes: { to: { kind: 'int', value: 1n } } }),
      makeNode('Mul', ['scales', 'wide'], 'weight', {}),
      { ...makeNode('MatMul', ['x', 'weight'], 'y', {}), name: '/layers.0/mlp/up_proj/MatMul' },
    ]
    const constantOf = (name: string, onnxType: number, dims: number[], bytes: number) =>
      ({ name, onnxType, dims, data: { kind: 'bytes', bytes: new Uint8Array(bytes) } }) as const
    const { graph } = makeModel({
      name: 'test',
      nodes,
      constants: [constantOf('w', 3, [8, 4], 32), constantOf('scales', 1, [4], 16)],
      inputs: [makeValue('x', 'float32', [1, 8])],
      outputs: [makeValue('y', 'float32', [1, 4])],
    })
    const [module] = findLinearModules(new GraphView(graph))
    expect(module).toMatchObject({ inSize: 8, outSize: 4, form: 'matrix' })
  })

  it.each([
    ['model.layers.0.mlp.up_proj', 'layers.0.mlp.up_proj'],
    ['model.language_model.layers.0.mlp.up_proj', 'layers.0.mlp.up_proj'],
    ['transformer.h.11.attn.c_attn', 'h.11.attn.c_attn'],
    ['lm_head', 'lm_head'],
  ])('%s has the key %s', (path, key) => {
    expect(moduleKey(path)).toBe(key)
  })
})
