import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import {
  type Attribute,
  type Constant,
  float,
  type GraphNode,
  type GraphValue,
  int,
  int64Constant,
  ints,
  makeConstant,
  makeModel,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'
import { uniformAt } from '#workers/sampling/counter-random.ts'
import { countElements } from '#workers/tensor/element-type.ts'
import { differentiate } from '#workers/training/autodiff/differentiate.ts'
import { GraphWriter } from '#workers/training/graph-writer.ts'
import { lowerGraph } from '#workers/training/lowering/lower-graph.ts'

/** Operators from trained inputs to the output `y`, of which every gradient is checked. */
interface Case {
  readonly trained: Readonly<Record<string, readonly number[]>>
  readonly nodes: readonly GraphNode[]
  readonly constants?: readonly Constant[]
  /** Whole numbers, as inputs. */
  readonly given?: Readonly<Record<string, { readonly dims: number[]; readonly values: number[] }>>
  /** Trained values are from 0.5 to 1.5 instead of from -1 to 1. */
  readonly isPositive?: boolean
  /** Inputs that exist for their declared sizes. */
  readonly declared?: readonly GraphValue[]
}

type Attributes = Readonly<Record<string, Attribute>>
const node = (operator: string, inputs: string[], attributes: Attributes = {}): GraphNode =>
  makeNode(operator, inputs, 'y', { attributes })
const fused = (operator: string, inputs: string[], attributes: Attributes = {}): GraphNode =>
  makeNode(operator, inputs, 'y', { attributes, domain: 'com.microsoft' })
const floats = (name: string, dims: number[], seed = 7): Constant =>
  makeConstant(name, 'float32', dims, drawn(countElements(dims), seed, false))

const unary = (operator: string, isPositive = false): Case => ({
  trained: { x: [2, 3] },
  nodes: [node(operator, ['x'])],
  isPositive,
})

const attention = (settings: Attributes = {}): Case => ({
  trained: { q: [2, 3, 16], k: [2, 3, 8], v: [2, 3, 8] },
  nodes: [
    fused('GroupQueryAttention', ['q', 'k', 'v', 'past', 'past', '', '', 'cos', 'sin'], {
      num_heads: int(4),
      kv_num_heads: int(2),
      do_rotary: int(1),
      ...settings,
    }),
  ],
  constants: [floats('cos', [4, 2]), floats('sin', [4, 2], 8)],
  given: {
    position_ids: { dims: [2, 3], values: [0, 1, 2, 0, 1, 0] },
    segment_ids: { dims: [2, 3], values: [0, 0, 0, 0, 0, 1] },
  },
  declared: [makeValue('past', 'float32', ['batch', 2, 'length', 4])],
})

const CASES: Readonly<Record<string, Case>> = {
  'Add of a broadcast vector': { trained: { x: [2, 3], z: [3] }, nodes: [node('Add', ['x', 'z'])] },
  'Add of a tensor to itself': { trained: { x: [2, 3] }, nodes: [node('Add', ['x', 'x'])] },
  'Sub of a column': { trained: { x: [2, 3], z: [2, 1] }, nodes: [node('Sub', ['x', 'z'])] },
  'Mul of a row': { trained: { x: [2, 2, 3], z: [1, 3] }, nodes: [node('Mul', ['x', 'z'])] },
  Div: { trained: { x: [2, 3], z: [2, 3] }, nodes: [node('Div', ['x', 'z'])], isPositive: true },
  'Pow by two': {
    trained: { x: [2, 3] },
    nodes: [node('Pow', ['x', 'p'])],
    constants: [makeConstant('p', 'float32', [], Float32Array.of(2))],
  },
  'Pow by one half': {
    trained: { x: [2, 3] },
    nodes: [node('Pow', ['x', 'p'])],
    constants: [makeConstant('p', 'float32', [], Float32Array.of(0.5))],
    isPositive: true,
  },
  Where: {
    trained: { x: [2, 3], z: [3] },
    nodes: [makeNode('Greater', ['c', 'zero'], 'above'), node('Where', ['above', 'x', 'z'])],
    constants: [floats('c', [2, 3]), makeConstant('zero', 'float32', [], Float32Array.of(0))],
  },
  ...Object.fromEntries(
    ['Neg', 'Exp', 'Abs', 'Sigmoid', 'Tanh', 'Softplus', 'Relu', 'Erf', 'Identity'].map((name) => [
      name,
      unary(name),
    ]),
  ),
  ...Object.fromEntries(['Sqrt', 'Reciprocal', 'Log'].map((name) => [name, unary(name, true)])),
  'Cast to the same type': { trained: { x: [2] }, nodes: [node('Cast', ['x'], { to: int(1) })] },
  'MatMul of batches': {
    trained: { x: [2, 2, 3], z: [2, 3, 4] },
    nodes: [node('MatMul', ['x', 'z'])],
  },
  'MatMul by one matrix': {
    trained: { x: [2, 2, 3], z: [3, 4] },
    nodes: [node('MatMul', ['x', 'z'])],
  },
  ...Object.fromEntries(
    [
      [0, 0],
      [0, 1],
      [1, 0],
      [1, 1],
    ].map(([a, b]) => [
      `Gemm with transA ${a} and transB ${b}`,
      {
        trained: { x: a ? [3, 2] : [2, 3], z: b ? [4, 3] : [3, 4], c: [4] },
        nodes: [
          node('Gemm', ['x', 'z', 'c'], {
            transA: int(a as number),
            transB: int(b as number),
            alpha: float(0.5),
            beta: float(2),
          }),
        ],
      },
    ]),
  ),
  ReduceSum: {
    trained: { x: [2, 3, 2] },
    nodes: [node('ReduceSum', ['x', 'axes'], { keepdims: int(0) })],
    constants: [int64Constant('axes', [1])],
  },
  'ReduceMean with kept axes': {
    trained: { x: [2, 3, 2] },
    nodes: [node('ReduceMean', ['x'], { axes: ints(-1), keepdims: int(1) })],
  },
  Softmax: { trained: { x: [2, 4] }, nodes: [node('Softmax', ['x'])] },
  LogSoftmax: { trained: { x: [2, 4] }, nodes: [node('LogSoftmax', ['x'])] },
  SimplifiedLayerNormalization: {
    trained: { x: [2, 4], g: [4] },
    nodes: [node('SimplifiedLayerNormalization', ['x', 'g'], { epsilon: float(1e-5) })],
  },
  LayerNormalization: {
    trained: { x: [2, 4], g: [4], b: [4] },
    nodes: [node('LayerNormalization', ['x', 'g', 'b'])],
  },
  'SkipSimplifiedLayerNormalization with its sum': {
    trained: { x: [2, 1, 4], s: [2, 1, 4], g: [4] },
    nodes: [
      makeNode('SkipSimplifiedLayerNormalization', ['x', 's', 'g'], ['n', '', '', 'sum'], {
        domain: 'com.microsoft',
        attributes: { epsilon: float(1e-5) },
      }),
      node('Mul', ['n', 'sum']),
    ],
  },
  SkipLayerNormalization: {
    trained: { x: [2, 1, 4], s: [2, 1, 4], g: [4], b: [4], c: [4] },
    nodes: [fused('SkipLayerNormalization', ['x', 's', 'g', 'b', 'c'], { epsilon: float(1e-5) })],
  },
  Gelu: { trained: { x: [2, 3] }, nodes: [fused('Gelu', ['x'])] },
  FastGelu: { trained: { x: [2, 3], b: [3] }, nodes: [fused('FastGelu', ['x', 'b'])] },
  BiasGelu: { trained: { x: [2, 3], b: [3] }, nodes: [fused('BiasGelu', ['x', 'b'])] },
  QuickGelu: { trained: { x: [2, 3] }, nodes: [fused('QuickGelu', ['x'])] },
  Reshape: {
    trained: { x: [2, 3] },
    nodes: [node('Reshape', ['x', 'dims'])],
    constants: [int64Constant('dims', [3, 2])],
  },
  'Squeeze of Unsqueeze': {
    trained: { x: [2, 3] },
    nodes: [makeNode('Unsqueeze', ['x', 'one'], 'u'), node('Squeeze', ['u', 'one'])],
    constants: [int64Constant('one', [1])],
  },
  Expand: {
    trained: { x: [2, 1] },
    nodes: [node('Expand', ['x', 'dims'])],
    constants: [int64Constant('dims', [2, 2, 3])],
  },
  Transpose: {
    trained: { x: [2, 3, 4] },
    nodes: [node('Transpose', ['x'], { perm: ints(1, 2, 0) })],
  },
  'Concat of unequal parts': {
    trained: { x: [2, 1], z: [2, 3] },
    nodes: [node('Concat', ['x', 'z'], { axis: int(-1) })],
  },
  'Split of which a part is not used': {
    trained: { x: [2, 5] },
    nodes: [
      makeNode('Split', ['x', 'sizes'], ['p', 'q'], { attributes: { axis: int(1) } }),
      node('Mul', ['q', 'q']),
    ],
    constants: [int64Constant('sizes', [2, 3])],
  },
  'Slice from the end': {
    trained: { x: [2, 5] },
    nodes: [node('Slice', ['x', 'start', 'end', 'axis'])],
    constants: [
      int64Constant('start', [-2]),
      int64Constant('end', [2 ** 31]),
      int64Constant('axis', [-1]),
    ],
  },
  'Slice of a middle': {
    trained: { x: [5, 2] },
    nodes: [node('Slice', ['x', 'start', 'end', 'axis'])],
    constants: [
      int64Constant('start', [1]),
      int64Constant('end', [-1]),
      int64Constant('axis', [0]),
    ],
  },
  'Gather with repeated rows': {
    trained: { x: [3, 2] },
    nodes: [node('Gather', ['x', 'rows'])],
    constants: [int64Constant('rows', [2, 0, 2])],
  },
  'GroupQueryAttention with two texts in a row': attention(),
  'GroupQueryAttention with a window and capped scores': attention({
    local_window_size: int(2),
    softcap: float(2),
    rotary_interleaved: int(1),
  }),
  'GroupQueryAttention of packed projections': {
    ...attention(),
    trained: { q: [2, 3, 32] },
    nodes: [
      fused('GroupQueryAttention', ['q', '', '', 'past', 'past', '', '', 'cos', 'sin'], {
        num_heads: int(4),
        kv_num_heads: int(2),
        do_rotary: int(1),
      }),
    ],
  },
}

let runtime: Runtime
beforeAll(() => {
  runtime = openRuntime()
})
afterAll(() => runtime.close())

describe('the gradient of an operator', () => {
  it.each(Object.entries(CASES))('%s equals finite differences', async (_name, check) => {
    const session = await open(check)
    const values = Object.entries(check.trained).map(([name, dims], index) => {
      const elements = drawn(countElements(dims), index + 1, check.isPositive === true)
      return { name, elements, tensor: runtime.tensor('float32', elements, dims) }
    })
    const given = Object.entries(check.given ?? {}).map(([name, { dims, values: list }]) => {
      return [name, runtime.tensor('int64', BigInt64Array.from(list, BigInt), dims)] as const
    })
    const feeds = {
      ...Object.fromEntries(values.map(({ name, tensor }) => [name, tensor])),
      ...Object.fromEntries(given),
    }
    const loss = async (): Promise<number> => {
      const { loss: found } = await session.run(feeds, { loss: null })
      return Number(found.data[0])
    }
    for (const { name, elements } of values) {
      const found = await session.run(feeds, { [`d${name}`]: null })
      const gradient = Array.from((found[`d${name}`]?.data ?? []) as Float32Array)
      const differences: number[] = []
      for (const [index, value] of elements.entries()) {
        elements[index] = value + STEP
        const above = await loss()
        elements[index] = value - STEP
        differences.push((above - (await loss())) / (2 * STEP))
        elements[index] = value
      }
      const largest = Math.max(...differences.map(Math.abs))
      const errors = gradient.map((part, index) => Math.abs(part - (differences[index] ?? NaN)))
      expect(Math.max(...errors) / largest, name).toBeLessThan(TOLERANCE)
    }
  })

  it.each([
    ['an operator without a rule', node('Einsum', ['x', 'x'], EINSUM()), 'Einsum'],
    ['a reduction along another axis', node('Softmax', ['x'], { axis: int(0) }), 'Softmax'],
  ])('is refused for %s', (_name, refused, operator) => {
    expect(() => differentiated({ trained: { x: [2, 2] }, nodes: [refused] })).toThrow(
      `its operator ${operator} (y/${operator}) has no gradient`,
    )
  })
})

function EINSUM(): Attributes {
  return { equation: { kind: 'string', value: 'ij,jk->ik' } }
}

const STEP = 1 / 128 // a power of two has no rounding error
const TOLERANCE = 2e-3 // of the largest: second-order terms and single precision

/** Reproducible numbers; far from zero where they are to be positive. */
function drawn(count: number, seed: number, isPositive: boolean): Float32Array {
  return Float32Array.from({ length: count }, (_, index) => {
    const uniform = uniformAt(seed, 0, index)
    return isPositive ? 0.5 + uniform : 2 * uniform - 1
  })
}

async function open(check: Case) {
  const bytes = writeModel(differentiated(check))
  return await runtime.load({ name: 'case', bytes }, { intraOpThreads: 1 })
}

/** A model with the sum of `cos(y)` as loss, and with the gradients of the trained inputs. */
function differentiated({ trained, nodes, constants = [], given = {}, declared = [] }: Case) {
  const names = Object.keys(trained)
  const inputs = [
    ...Object.entries(trained).map(([name, dims]) => makeValue(name, 'float32', dims)),
    ...declared,
  ]
  const lossNodes = [
    makeNode('Sin', ['y'], 'sines'),
    makeNode('ReduceSum', ['sines'], 'loss', { attributes: { keepdims: int(0) } }),
  ]
  const { graph } = lowerGraph(
    {
      name: 'case',
      nodes: [...nodes, ...lossNodes],
      constants,
      inputs,
      rest: [],
      outputs: [makeValue('y', 'float32', undefined), makeValue('loss', 'float32', [])],
    },
    new GraphWriter('forward', 17),
  )
  const writer = new GraphWriter('backward', 17)
  const seed = writer.emit('Cos', ['y'])
  const gradients = differentiate(graph, { seeds: new Map([['y', seed]]), trained: names }, writer)
  const results = names.map((name) => {
    writer.emitTo(`d${name}`, 'Identity', [gradients.of(name) ?? ''])
    return makeValue(`d${name}`, 'float32', trained[name])
  })
  const fed = Object.entries(given).map(([name, { dims }]) => makeValue(name, 'int64', dims))
  const known = new Set(graph.inputs.map(({ name }) => name))
  return makeModel({
    name: 'case',
    nodes: [...graph.nodes, ...writer.nodes],
    constants: [...graph.constants, ...writer.constants],
    inputs: [...graph.inputs, ...fed.filter(({ name }) => !known.has(name))],
    outputs: [makeValue('loss', 'float32', []), ...results],
    opsets: [
      { domain: '', version: 17 },
      { domain: 'com.microsoft', version: 1 },
    ],
  })
}
