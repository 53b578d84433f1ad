import { join } from 'node:path'

import { afterAll, afterEach, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { rewriteDecoder } from '#workers/engine/rewrite/rewrite-decoder.ts'
import {
  type GraphNode,
  type GraphValue,
  int,
  int64Constant,
  ints,
  type Model,
  makeConstant,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { changedFolders, golden, removeFolders, renamed, withNodes } from './changed-folders.ts'

// Models of decoder-families.test.ts whose caches are elsewhere, or nowhere.

const runtime = openRuntime()
afterAll(() => runtime.close())
const { folders, changed, check } = changedFolders(runtime)
afterEach(() => removeFolders(folders))

describe('a file whose operator Attention has the caches', () => {
  it.each([
    ['[batch, heads, length, size]', false],
    ['[batch, length, heads · size]', true],
  ])('is rewritten with tensors of %s', async (_, isJoined) => {
    const folder = await changed('llama-opset-23', 'model', (model) => {
      return withOwnCaches(model, isJoined)
    })
    await check(folder, golden('llama-opset-23'), 'rewritten')
  })
})

describe('a file of transformers with operators of ONNX Runtime', () => {
  it.each([
    ['before', false],
    ['after', true],
  ])(
    'is rewritten where tokens without others to see are zeros %s heads are joined',
    async (_, isTurned) => {
      const folder = await changed('llama-opset-23', 'model', (model) => withGuard(model, isTurned))
      await check(folder, golden('llama-opset-23'), 'rewritten')
    },
  )
})

it('rotates queries and keys within the operator that has the caches', async () => {
  const folder = join(MODELS, 'llama/onnx')
  const file = join(folder, 'model.onnx')
  const context = { runtime, file, folder, executionProvider: 'cpu' } as const
  const shape = { numHeads: 4, contextLength: 64 }
  const model = await rewriteDecoder(context, await readModelFile(file), shape)
  const attentions = defined(model).graph.nodes.filter(
    ({ operator }) => operator === 'GroupQueryAttention',
  )
  const rotates = attentions.map(({ attributes }) => attributes?.do_rotary)
  expect(rotates).toEqual([int(1), int(1)])
})

it('a file with caches of a fixed length is refused by that reason', async () => {
  const folder = await changed('llama', 'model', (model) => {
    const { graph } = renamed(withoutCaches(model), (name) => name)
    const cache = makeValue('cache.layers.0.keys', 'float32', ['batch', 2, 'length', 16])
    return { ...model, graph: { ...graph, inputs: [...graph.inputs, cache] } }
  })
  const options = { runtime, folder, onnxFile: 'changed', slots: 1 }
  await expect(openTextEngine(options)).rejects.toMatchObject({
    name: 'ModelLoadError',
    message: expect.stringMatching(
      /cache\.layers\.0\.keys is not a cache that grows.*DynamicCache/,
    ),
  })
})

describe('a file without caches', () => {
  it.each(['llama', 'qwen3', 'phi3', 'gpt2', 'gpt-neox', 'opt', 'mistral', 'gemma2', 'gemma3'])(
    'of %s gets them when it is loaded',
    async (name) => {
      await check(await changed(name, 'model', withoutCaches), golden(name), 'rewritten')
    },
  )

  it('gets them with another name of its logits', async () => {
    const rename = (name: string): string => (name === 'logits' ? 'linear_14' : name)
    const folder = await changed('llama', 'model', (model) => {
      return renamed(withoutCaches(model), rename)
    })
    await check(folder, golden('llama'), 'rewritten')
  })

  it('gets them where it returns caches that it never reads', async () => {
    const folder = await changed('llama', 'model', (model) => {
      const { graph } = withoutCaches(model)
      const presents = model.graph.outputs.filter(({ name }) => name.startsWith('present.'))
      const nodes = graph.nodes.map((node) => {
        const back = (name: string): string => name.replace(/^whole\.present/, 'present')
        return { ...node, inputs: node.inputs.map(back), outputs: node.outputs.map(back) }
      })
      return { ...model, graph: { ...graph, nodes, outputs: [...graph.outputs, ...presents] } }
    })
    await check(folder, golden('llama'), 'rewritten')
  })

  it('gets them where the length of its windows is an input', async () => {
    const folder = await changed('mistral', 'model', (model) => {
      const { graph } = withoutCaches(model)
      const length = makeValue('input.cache.layers.0._sliding_window_tensor', 'int64', [])
      return { ...model, graph: { ...graph, inputs: [...graph.inputs, length] } }
    })
    await check(folder, golden('mistral'), 'rewritten')
  })

  it('is refused by that reason where its attention is not recognized', async () => {
    const folder = await changed('bloom', 'model', withoutCaches)
    const options = { runtime, folder, onnxFile: 'changed', slots: 1 }
    await expect(openTextEngine(options)).rejects.toMatchObject({
      name: 'ModelLoadError',
      message: expect.stringContaining('exported without a cache'),
    })
  })
})

/** Keys and values appended to the caches by the attention instead of before it. */
function withOwnCaches(model: Model, isJoined: boolean): Model {
  const producers = new Map(model.graph.nodes.map((node) => [node.outputs[0], node]))
  const appendOf = (name = ''): GraphNode => {
    const node = defined(producers.get(name))
    return node.operator === 'Concat' ? node : appendOf(node.inputs[0])
  }
  const turned = { attributes: { perm: ints(0, 2, 1, 3) } }
  const removed = new Set<GraphNode>()
  const { graph } = withNodes(model, (node) => {
    if (node.operator !== 'Attention') return [node]
    const [query = '', key, value, mask = ''] = node.inputs
    const appends = [appendOf(key), appendOf(value)]
    for (const append of appends) removed.add(append)
    const [pasts, added, presents] = [
      appends.map(({ inputs }) => defined(inputs[0])),
      appends.map(({ inputs }) => defined(inputs[1])),
      appends.map(({ outputs }) => defined(outputs[0])),
    ]
    const [output = ''] = node.outputs
    if (!isJoined) {
      const inputs = [query, ...added, mask, ...pasts]
      return [{ ...node, inputs, outputs: [output, ...presents] }]
    }
    const join = (name: string): GraphNode[] => [
      makeNode('Transpose', [name], `${output}/${name}/turned`, turned),
      makeNode('Reshape', [`${output}/${name}/turned`, 'joined'], `${output}/${name}`),
    ]
    const joined = [query, ...added].map((name) => `${output}/${name}`)
    return [
      ...[query, ...added].flatMap(join),
      {
        ...node,
        inputs: [...joined, mask, ...pasts],
        outputs: [`${output}/joined`, ...presents],
        attributes: { ...node.attributes, q_num_heads: int(4), kv_num_heads: int(2) },
      },
      makeNode('Reshape', [`${output}/joined`, 'split'], `${output}/split`),
      makeNode('Transpose', [`${output}/split`], output, turned),
    ]
  })
  const shapes = [int64Constant('joined', [0, 0, -1]), int64Constant('split', [0, 0, 4, 16])]
  const nodes = graph.nodes.filter((node) => !removed.has(node))
  return { ...model, graph: { ...graph, nodes, constants: [...graph.constants, ...shapes] } }
}

/**
 * Zeros where the mask hides all positions, before or after the output is transposed to [batch,
 * length, heads, size].
 */
function withGuard(model: Model, isTurned: boolean): Model {
  const consumers = Map.groupBy(
    model.graph.nodes.flatMap((node) => node.inputs.map((input) => ({ input, node }))),
    ({ input }) => input,
  )
  const masks = new Map<string, string>()
  for (const { operator, inputs, outputs } of model.graph.nodes) {
    if (operator !== 'Attention') continue
    const [turn] = consumers.get(defined(outputs[0])) ?? []
    const guarded = isTurned ? turn?.node.outputs[0] : outputs[0]
    masks.set(defined(guarded), defined(inputs[3]))
  }
  const { graph } = withNodes(model, (node) => {
    const [output = ''] = node.outputs
    const mask = masks.get(output)
    if (mask === undefined) return [node]
    const to = (name: string): string => `${output}/${name}`
    return [
      { ...node, outputs: [to('attended'), ...node.outputs.slice(1)] },
      makeNode('Cast', [mask], to('number'), { attributes: { to: int(1) } }),
      makeNode('ReduceSum', [to('number'), 'last'], to('sum')),
      makeNode('Less', [to('sum'), 'half'], to('unseeing')),
      makeNode('Transpose', [to('unseeing')], to('rows'), {
        attributes: { perm: ints(0, 2, 1, 3) },
      }),
      makeNode('Where', [to(isTurned ? 'rows' : 'unseeing'), 'zero', to('attended')], output),
    ]
  })
  const constants = [
    ...graph.constants,
    int64Constant('last', [-1]),
    makeConstant('half', 'float32', [], Float32Array.of(0.5)),
    makeConstant('zero', 'float32', [], Float32Array.of(0)),
  ]
  return { ...model, graph: { ...graph, constants } }
}

/** A decoder of whole texts: its growing caches are constants of no positions. */
function withoutCaches(model: Model): Model {
  const { graph } = renamed(model, (name) =>
    name.replace(/^(past_key_values|present)\./, 'whole.$1.'),
  )
  const isCache = ({ name }: GraphValue): boolean => name.startsWith('whole.')
  const empty = graph.inputs.filter(isCache).map(({ name, dims = [] }) => {
    const sizes = dims.map((dim, axis) => (axis === 0 ? 1 : axis === 2 ? 0 : Number(dim)))
    return makeConstant(name, 'float32', sizes, new Float32Array())
  })
  return {
    ...model,
    graph: {
      ...graph,
      inputs: graph.inputs.filter((input) => !isCache(input)),
      outputs: graph.outputs.filter((output) => !isCache(output)),
      constants: [...graph.constants, ...empty],
    },
  }
}
