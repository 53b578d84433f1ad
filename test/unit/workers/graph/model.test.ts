import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { openProbe } from '#workers/engine/rewrite/graph-probe.ts'
import { ancestryOf, sorted, withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { commutative, match } from '#workers/graph/match.ts'
import {
  float,
  int,
  int64Constant,
  ints,
  type Model,
  makeModel,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { field, numberField } from '#workers/graph/wire.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'
import { ELEMENT_TYPES } from '#workers/tensor/element-type.ts'

let folder: string
let runtime: Runtime
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-graph-'))
  runtime = openRuntime()
})
afterAll(async () => {
  await runtime.close()
  rmSync(folder, { recursive: true })
})

const FILES = [
  ...readdirSync(MODELS).flatMap((name) => {
    const graphs = join(MODELS, name, 'onnx')
    try {
      const files = readdirSync(graphs).filter((file) => file.endsWith('.onnx'))
      return files.map((file) => `${name}/onnx/${file}`)
    } catch {
      return []
    }
  }),
]

describe('a model of a file', () => {
  it.each(FILES)('%s is the same after it was written and read again', async (name) => {
    const model = await readModelFile(join(MODELS, name))
    const copy = join(folder, 'copy.onnx')
    writeFileSync(copy, writeModel(model))
    expect(await readModelFile(copy)).toEqual(model)
    const options = { intraOpThreads: 1 }
    const bytes = { name, bytes: readFileSync(copy), folder: dirname(join(MODELS, name)) }
    const [original, written] = await Promise.all([
      runtime.load(join(MODELS, name), options),
      runtime.load(bytes, options),
    ])
    expect(written.inputs).toEqual(original.inputs)
    expect(written.outputs).toEqual(original.outputs)
    await Promise.all([original.close(), written.close()])
  })

  it('keeps large weights in their file and lists small ones', async () => {
    const { graph } = await readModelFile(join(MODELS, 'llama/onnx/model.onnx'))
    const kinds = graph.constants.map(({ data }) => data.kind)
    expect(new Set(kinds)).toEqual(new Set(['bytes', 'file']))
    const external = await readModelFile(join(MODELS, 'llama-external/onnx/model.onnx'))
    const data = external.graph.constants.find(({ data: { kind } }) => kind === 'file')?.data
    expect(data).toMatchObject({ location: 'model.onnx_data' })
  })

  const whole = (): Buffer => readFileSync(join(MODELS, 'llama/onnx/model.onnx'))
  it.each([
    ['is broken off', (bytes: Buffer) => bytes.subarray(0, bytes.length / 2), 'a field is broken'],
    ['is empty', () => Buffer.alloc(0), 'it has no graph'],
    ['is no protocol buffer', () => Buffer.from('<html>'), 'a field is broken'],
    [
      'nests its graphs too deeply',
      () => Buffer.from(writeModel(nested(33))),
      'its graphs are nested too deeply',
    ],
    [
      'has millions of parts',
      () => Buffer.from(field(7, field(1, Buffer.alloc(8_000_002, Buffer.from([0x0a, 0]))))),
      'it has over 4000000 parts',
    ],
    ['states a size beyond its end', () => Buffer.from([0x3a, 0xff, 0xff, 0xff, 0x7f]), 'broken'],
  ])('that %s is refused with one sentence', async (_case, change, message) => {
    const file = join(folder, 'broken.onnx')
    writeFileSync(file, change(whole()))
    await expect(readModelFile(file)).rejects.toMatchObject({ name: 'ModelLoadError' })
    await expect(readModelFile(file)).rejects.toThrow(message)
  })

  it('is read with lists of numbers that are not packed', async () => {
    const count = 200_000
    const tensor = field(5, [
      numberField(1, count),
      numberField(2, ELEMENT_TYPES.int32.onnxType),
      field(8, 'list'),
      ...Array.from({ length: count }, (_, at) => numberField(5, at)),
    ])
    const file = join(folder, 'list.onnx')
    writeFileSync(file, field(7, tensor))
    const { graph } = await readModelFile(file)
    expect(new GraphView(graph).numbers('list')?.at(-1)).toBe(count - 1)
  })

  it('keeps attributes of any name', async () => {
    const attributes = Object.fromEntries([['__proto__', int(7)]])
    const node = makeNode('Clip', ['x'], 'y', { attributes })
    const file = join(folder, 'names.onnx')
    writeFileSync(
      file,
      writeModel(makeModel({ name: 'a', nodes: [node], inputs: [], outputs: [] })),
    )
    const read = (await readModelFile(file)).graph.nodes[0]?.attributes
    expect(Object.entries(read ?? {})).toEqual([['__proto__', int(7)]])
  })

  it('that is missing is refused', async () => {
    await expect(readModelFile(join(folder, 'none.onnx'))).rejects.toThrow('ENOENT')
  })
})

/** A model whose node has a graph, whose node has a graph, and so on. */
function nested(depth: number): Model {
  let model = makeModel({ name: 'inner', nodes: [], inputs: [], outputs: [] })
  for (let level = 0; level < depth; level += 1) {
    const body = { kind: 'graph', value: model.graph } as const
    const node = makeNode('If', ['x'], 'y', { attributes: { body } })
    model = makeModel({ name: 'outer', nodes: [node], inputs: [], outputs: [] })
  }
  return model
}

/** y = (x · 2 + x) with a node that nothing needs. */
const SMALL: Model = makeModel({
  name: 'small',
  nodes: [
    makeNode('Mul', ['two', 'x'], 'double'),
    makeNode('Identity', ['double'], 'renamed'),
    makeNode('Add', ['x', 'renamed'], 'y'),
    makeNode('Clip', ['x'], 'z', {
      attributes: { min: float(0.5), axis: int(-1), s: ints(1, -2) },
    }),
  ],
  constants: [int64Constant('two', [2]), int64Constant('three', [3])],
  inputs: [makeValue('x', 'int64', ['n', 4]), makeValue('unused', 'int64', [1])],
  outputs: [makeValue('y', 'int64', ['n', ''])],
})

describe('a part of a graph', () => {
  it('gets the values of a tensor before its transposition, moved', async () => {
    const perm = { attributes: { perm: ints(0, 2, 1, 3) } }
    const model = makeModel({
      name: 'heads',
      nodes: [
        makeNode('Transpose', ['x'], 'heads', perm),
        makeNode('Identity', ['x'], 'before'),
        makeNode('Identity', ['heads'], 'after'),
      ],
      constants: [],
      inputs: [makeValue('x', 'float32', ['', '', '', ''])],
      outputs: [makeValue('before', 'float32', ['', '', '', ''])],
    })
    const context = { runtime, file: 'heads', folder, executionProvider: 'cpu' } as const
    const wanted = ['before', 'after']
    const probe = defined(
      await openProbe(context, model, { wanted, boundary: { heads: 'float32' } }),
    )
    // Two heads of three positions, whose entries have two elements.
    const values = Float32Array.from({ length: 12 }, (_, index) => index)
    const feeds = { heads: { type: 'float32', dims: [1, 2, 3, 2], values } } as const
    const [before, after] = await probe.run(feeds)
    expect(before?.dims).toEqual([1, 3, 2, 2])
    expect([...(before?.values ?? [])]).toEqual([0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11])
    expect([...(after?.values ?? [])]).toEqual([...values])
    await probe.close()
  })
})

describe('a graph', () => {
  const view = new GraphView(SMALL.graph)

  it('keeps attributes and sizes when it is written', async () => {
    const file = join(folder, 'small.onnx')
    writeFileSync(file, writeModel(SMALL))
    const { graph } = await readModelFile(file)
    expect(graph.nodes).toEqual(SMALL.graph.nodes)
    expect(graph.inputs).toEqual(SMALL.graph.inputs)
    expect(new GraphView(graph).numbers('two')).toEqual([2])
  })

  it('is matched through renamed tensors and in any order of commutative inputs', () => {
    const doubled = commutative('Mul', 'x', 'factor')
    const found = match(view, 'y', commutative('Add', doubled, 'x'))
    expect(Object.fromEntries(defined(found).tensors)).toEqual({ x: 'x', factor: 'two' })
    expect(match(view, 'y', { operator: 'Add', inputs: [doubled, 'x'] })).toBeUndefined()
    expect(match(view, 'double', commutative('Mul', 'x', 'x'))).toBeUndefined()
    const either = { oneOf: [{ operator: 'Sub', inputs: ['a', 'b'] }, 'any'] }
    expect(match(view, 'y', either)?.tensors.get('any')).toBe('y')
  })

  it('is matched in bounded time when renamed tensors form a cycle', () => {
    const nodes = [makeNode('Identity', ['b'], 'a'), makeNode('Identity', ['a'], 'b')]
    const cyclic = new GraphView({ ...SMALL.graph, nodes })
    expect(match(cyclic, 'a', { operator: 'Add', inputs: ['x'] })).toBeUndefined()
  })

  it('is sorted and followed in linear time, however many nodes are renamed', () => {
    const count = 50_000
    const nodes = Array.from({ length: count }, (_, at) =>
      makeNode('Identity', [`t${at}`], `t${at + 1}`),
    )
    const long = new GraphView({ ...SMALL.graph, nodes })
    expect(sorted(nodes.toReversed())).toEqual(nodes)
    for (let at = 1; at <= count; at += 1) expect(long.source(`t${at}`) === 't0').toBe(true)
  })

  it('returns the part that computes a tensor from a boundary', () => {
    const part = ancestryOf(view, ['y'], new Set(['double']))
    expect(part.nodes.map(({ operator }) => operator)).toEqual(['Identity', 'Add'])
    expect(part.inputs.toSorted()).toEqual(['double', 'x'])
    expect(part.constants).toEqual([])
  })

  it('drops the nodes that its outputs do not need', () => {
    const { nodes, constants, inputs } = withoutUnused(view)
    expect(nodes.map(({ operator }) => operator)).toEqual(['Mul', 'Identity', 'Add'])
    expect(constants.map(({ name }) => name)).toEqual(['two'])
    expect(inputs.map(({ name }) => name)).toEqual(['x'])
  })

  it('is sorted so that every node follows those it reads', () => {
    const { nodes } = SMALL.graph
    expect(
      sorted(nodes.toReversed())
        .map(({ operator }) => operator)
        .toSorted(),
    ).toEqual(nodes.map(({ operator }) => operator).toSorted())
    const order = sorted(nodes.toReversed()).map(({ name }) => name)
    expect(order.indexOf('double/Mul')).toBeLessThan(order.indexOf('renamed/Identity'))
    expect(order.indexOf('renamed/Identity')).toBeLessThan(order.indexOf('y/Add'))
  })
})
