import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import {
  type Constant,
  makeConstant,
  makeModel,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import {
  CACHE_PARTS,
  decoderFeeds,
  GROWING_FILE,
  IN_PLACE_FILE,
  LOOP_FILE,
} from './decoder-feeds.ts'

const BFLOAT16 = 16
// E4M3FN
const FLOAT8 = 17
const FLOAT8_ONE = 0x38
const FLOAT8_TWO = 0x40

function float8Constant(name: string, dims: readonly number[], bytes: readonly number[]): Constant {
  return { name, onnxType: FLOAT8, dims, data: { kind: 'bytes', bytes: Uint8Array.from(bytes) } }
}

const runtime = openRuntime()
afterAll(() => runtime.close())

const session = await runtime.load(IN_PLACE_FILE, { intraOpThreads: 1 })
const feeds = decoderFeeds(runtime, session, { length: 0, capacity: 32 })

describe('a session', () => {
  it('lists the inputs and outputs of the model', () => {
    expect(session.inputs[0]).toEqual({
      name: 'input_ids',
      type: 'int64',
      dims: ['batch_size', 'sequence_length'],
    })
    expect(session.outputs.find(({ name }) => name === 'present.1.value')).toEqual({
      name: 'present.1.value',
      type: 'float32',
      dims: ['batch_size', 2, 'present_sequence_length', 16],
    })
  })

  it('writes given outputs in place', async () => {
    const cache = defined(feeds['past_key_values.0.key'])
    const logits = runtime.zeros('float32', [1, 1, 320])
    const results = await session.run(feeds, { logits, 'present.0.key': cache })
    expect(results.logits).toBe(logits)
    expect(logits.data.some((value) => value !== 0)).toBe(true)
    expect(cache.data.slice(0, 16).some((value) => value !== 0)).toBe(true)
    expect(cache.data.slice(16, 32).every((value) => value === 0)).toBe(true)
  })

  it('writes through a view and does not change the rest of the memory', async () => {
    const row = 2 * 32 * 16
    const memory = new Float32Array(3 * row)
    const view = runtime.tensor('float32', memory.subarray(row, 2 * row), [1, 2, 32, 16])
    const given = { ...feeds, 'past_key_values.0.key': view }
    const { logits } = await session.run(given, { logits: null, 'present.0.key': view })
    expect(memory.subarray(row, 2 * row).some((value) => value !== 0)).toBe(true)
    expect(memory.subarray(0, row).every((value) => value === 0)).toBe(true)
    expect(memory.subarray(2 * row).every((value) => value === 0)).toBe(true)
    logits.dispose()
  })

  it('accepts outputs that the runtime allocated as the inputs of the next run', async () => {
    const growing = await runtime.load(GROWING_FILE, { intraOpThreads: 1 })
    const fetches = Object.fromEntries(CACHE_PARTS.map((part) => [`present.${part}`, null]))
    const first = await growing.run(
      decoderFeeds(runtime, growing, { length: 0, capacity: 0 }),
      fetches,
    )
    const next: Record<string, Tensor> = decoderFeeds(runtime, growing, { length: 1, capacity: 1 })
    for (const part of CACHE_PARTS)
      next[`past_key_values.${part}`] = defined(first[`present.${part}`])
    const second = await growing.run(next, fetches)
    const [before, after] = [defined(first['present.0.key']), defined(second['present.0.key'])]
    expect(before.dims).toEqual([1, 2, 1, 16])
    expect(after.dims).toEqual([1, 2, 2, 16])
    expect(after.data.slice(0, 16)).toEqual(before.data.slice(0, 16))
    before.dispose()
    expect(before.isDisposed).toBe(true)
    expect(() => before.data).toThrow('disposed')
    await growing.close()
  })

  it.each<[string, string, Record<string, Tensor | undefined>]>([
    ['missingInput', 'attention_mask', { attention_mask: undefined }],
    ['unknownInput', 'pixel_values', { pixel_values: runtime.zeros('float32', [1]) }],
    ['wrongType', 'input_ids', { input_ids: runtime.zeros('int32', [1, 1]) }],
    ['wrongShape', 'input_ids', { input_ids: runtime.zeros('int64', [1]) }],
    [
      'wrongShape',
      'past_key_values.0.key',
      { 'past_key_values.0.key': runtime.zeros('float32', [1, 3, 32, 16]) },
    ],
  ])('refuses a %s and names %s', async (problem, tensorName, changes) => {
    const given: Record<string, Tensor | undefined> = { ...feeds, ...changes }
    if (given.attention_mask === undefined) delete given.attention_mask
    const failing = session.run(given as Record<string, Tensor>, { logits: null })
    await expect(failing).rejects.toMatchObject({ name: 'ModelRunError', problem, tensorName })
    await expect(failing).rejects.toThrow(tensorName)
  })

  it('refuses an unknown output by name', async () => {
    const failing = session.run(feeds, { logits: null, hidden: null })
    await expect(failing).rejects.toMatchObject({ problem: 'unknownOutput', tensorName: 'hidden' })
  })

  it('reports errors that only the model can find, and works afterwards', async () => {
    const loop = await runtime.load(LOOP_FILE)
    const trips = runtime.tensor('int64', BigInt64Array.of(1n), [])
    const x = runtime.zeros('float32', [2, 3])
    await expect(loop.run({ trips, x }, { y: null })).rejects.toMatchObject({ problem: 'failed' })
    const good = runtime.tensor('float32', Float32Array.of(1, 0, 0, 1), [2, 2])
    const { y } = await loop.run({ trips, x: good }, { y: null })
    expect(Array.from(y.data as Float32Array)[0]).toBeCloseTo(Math.tanh(1), 6)
    y.dispose()
  })
})

describe('loading', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-runtime-'))
  afterAll(() => rmSync(folder, { recursive: true }))

  it('names a file that is not there', async () => {
    await expect(runtime.load('/nowhere/model.onnx')).rejects.toMatchObject({
      name: 'ModelLoadError',
      file: '/nowhere/model.onnx',
    })
  })

  it('names a file that is not a model', async () => {
    const file = join(folder, 'broken.onnx')
    writeFileSync(file, 'no protobuf')
    await expect(runtime.load(file)).rejects.toThrow(file)
  })

  it('names an operator that only other tools have', async () => {
    const model = makeModel({
      name: 'foreign',
      nodes: [makeNode('BFPQuantizeDequantize', ['x'], 'y', { domain: 'com.amd.quark' })],
      inputs: [makeValue('x', 'float32', [1])],
      outputs: [makeValue('y', 'float32', [1])],
      opsets: [
        { domain: '', version: 19 },
        { domain: 'com.amd.quark', version: 1 },
      ],
    })
    await expect(runtime.load({ name: 'foreign.onnx', bytes: writeModel(model) })).rejects.toThrow(
      'foreign.onnx: the graph needs the operator BFPQuantizeDequantize of com.amd.quark, which ONNX Runtime does not have',
    )
  })

  it('names an operator whose types a processor cannot compute', async () => {
    const value = (name: string) => ({ ...makeValue(name, 'float16', [2, 2]), onnxType: BFLOAT16 })
    const model = makeModel({
      name: 'bfloat16',
      nodes: [makeNode('MatMul', ['x', 'x'], 'y')],
      inputs: [value('x')],
      outputs: [value('y')],
    })
    await expect(runtime.load({ name: 'bfloat16.onnx', bytes: writeModel(model) })).rejects.toThrow(
      'bfloat16.onnx: ONNX Runtime cannot compute MatMul with the element types of the graph, such as bfloat16 on a processor',
    )
  })

  it('multiplies activations and weights in 8-bit floats', async () => {
    const model = makeModel({
      name: 'float8',
      nodes: [
        makeNode('QuantizeLinear', ['x', 'scale', 'zero'], 'quantized'),
        makeNode('DequantizeLinear', ['quantized', 'scale', 'zero'], 'rounded'),
        makeNode('DequantizeLinear', ['weights', 'scale', 'zero'], 'matrix'),
        makeNode('MatMul', ['rounded', 'matrix'], 'y'),
      ],
      constants: [
        makeConstant('scale', 'float32', [], Float32Array.of(1)),
        float8Constant('zero', [], [0]),
        float8Constant('weights', [2, 1], [FLOAT8_ONE, FLOAT8_TWO]),
      ],
      inputs: [makeValue('x', 'float32', ['rows', 2])],
      outputs: [makeValue('y', 'float32', ['rows', 1])],
      opsets: [{ domain: '', version: 19 }],
    })
    const loaded = await runtime.load({ name: 'float8.onnx', bytes: writeModel(model) })
    const x = runtime.tensor('float32', Float32Array.of(1, 2, 4, 8), [2, 2])
    const { y } = await loaded.run({ x }, { y: null })
    expect([...defined(y).data]).toEqual([5, 20])
    for (const tensor of [x, defined(y)]) tensor.dispose()
    await loaded.close()
  })

  it('names the missing requirement of an execution provider', async () => {
    const loaded = await runtime.load(LOOP_FILE, { executionProvider: 'cuda' }).then(
      (cuda) => `loaded ${cuda.file}`,
      (error: Error) => error.message,
    )
    expect(loaded).toMatch(/^loaded |the execution provider cuda is not available .*NVIDIA/)
  })
})

describe('a tensor', () => {
  it('refuses memory that does not match its shape', () => {
    expect(() => runtime.tensor('float32', new Float32Array(5), [2, 3])).toThrow(RangeError)
    expect(() => runtime.tensor('float16', new Float32Array(6), [2, 3])).toThrow(RangeError)
  })
})
