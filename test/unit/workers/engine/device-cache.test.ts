import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { DeviceCache } from '#workers/engine/device/device-cache.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import { generate, MODELS } from './generate.ts'

const ROWS = 3
const HEADS = 2
const LENGTH = 5
const SIZE = 4
const FOLDER = join(MODELS, 'llama-in-place')
const PAIRS = (['float32', 'float16'] as const).map((type) => ({
  past: type,
  present: type,
  type,
  numHeads: HEADS,
  headDim: SIZE,
}))

const runtime = openRuntime()
/** Tensors that the cache made of its own numbers. */
const made: Tensor[] = []
let session: ModelSession
let device: DeviceCache
beforeAll(async () => {
  session = await runtime.load(join(FOLDER, 'onnx/model.onnx'))
  const watched = {
    ...runtime,
    tensor: (...args: Parameters<typeof runtime.tensor>) => {
      const tensor = runtime.tensor(...args)
      made.push(tensor)
      return tensor
    },
  }
  device = await DeviceCache.open(watched, session, PAIRS)
})
afterAll(async () => {
  await device.close()
  await runtime.close()
})

const WHOLE = { row: 0, from: 0, to: LENGTH, before: 0, after: 0 }

/**
 * Tensors of this process, of one row or more, one for each pair; their elements count up from one.
 */
function onHost(rows: number, length: number): Tensor[] {
  return PAIRS.map(({ type }) => {
    const count = rows * HEADS * length * SIZE
    const values = Array.from({ length: count }, (_, index) => index + 1)
    const data = type === 'float32' ? Float32Array.from(values) : Float16Array.from(values)
    return runtime.tensor(type, data, [rows, HEADS, length, SIZE])
  })
}

/** Element of `onHost(ROWS, LENGTH)`. */
function valueAt(row: number, head: number, position: number, index: number): number {
  return ((row * HEADS + head) * LENGTH + position) * SIZE + index + 1
}

/** The expected copy of one row: `held` positions starting at `from`, after `before` zeros. */
function expectedRow(row: number, from: number, held: number, before: number, length: number) {
  const values: number[] = []
  for (let head = 0; head < HEADS; head += 1) {
    for (let position = 0; position < length; position += 1) {
      for (let index = 0; index < SIZE; index += 1) {
        const isHeld = position >= before && position < before + held
        values.push(isHeld ? valueAt(row, head, position - before + from, index) : 0)
      }
    }
  }
  return values
}

describe('a cache in the memory of a device', () => {
  it.each([
    ['all of a row', { row: 1, from: 0, to: LENGTH, before: 0, after: 0 }],
    ['its beginning, with room behind it', { row: 2, from: 0, to: 3, before: 0, after: 4 }],
    ['its end, with padding before it', { row: 0, from: 2, to: LENGTH, before: 6, after: 0 }],
    ['a piece with both', { row: 1, from: 1, to: 2, before: 1, after: 1 }],
  ])('copies %s, and frees its own tensors', async (_name, piece) => {
    const held = piece.to - piece.from
    const length = held + piece.before + piece.after
    const targets = onHost(1, length)
    await device.copy(onHost(ROWS, LENGTH), piece, targets)
    const expected = expectedRow(piece.row, piece.from, held, piece.before, length)
    for (const { data } of targets) expect(Array.from(data as Float32Array)).toEqual(expected)
    expect(made.length).toBeGreaterThan(0)
    expect(made.filter(({ isDisposed }) => !isDisposed)).toEqual([])
  })

  it('copies into a row of its own and out of it, past the others', async () => {
    const tensors = device.allocate(ROWS, LENGTH)
    const source = onHost(ROWS, LENGTH)
    for (const row of [2, 0, 1]) {
      const targets = device.view(tensors, row, 1)
      await device.copy(source, { ...WHOLE, row: ROWS - 1 - row }, targets)
      for (const tensor of targets) tensor.dispose()
    }
    for (const row of [0, 1, 2]) {
      const back = onHost(1, LENGTH)
      await device.copy(tensors, { ...WHOLE, row }, back)
      const expected = expectedRow(ROWS - 1 - row, 0, LENGTH, 0, LENGTH)
      for (const { data } of back) expect(Array.from(data as Float32Array)).toEqual(expected)
    }
    for (const tensor of tensors) tensor.dispose()
  })

  it('does not allow reads of its elements here', () => {
    const [tensor] = device.allocate(1, 1)
    expect(() => defined(tensor).data).toThrow('a tensor on a device cannot be read')
    defined(tensor).dispose()
  })

  it('reports a lack of memory when a model is loaded', async () => {
    const options = { runtime, folder: FOLDER, cacheMemory: 'device', slots: 1e9 } as const
    await expect(openTextEngine(options)).rejects.toThrow(
      /the device has no room for the cache of 1000000000 slots .*, \d+ tokens each: \d+ MiB; give the model fewer slots/,
    )
  })

  it('frees the memory of a cache that grows at every step', async () => {
    const shared = { runtime, folder: join(MODELS, 'llama'), onnxFile: 'model' } as const
    const engine = await openTextEngine({
      ...shared,
      cacheMemory: 'device',
      asExported: true,
      slots: 8,
    })
    // Eight texts of 256 positions take 256 bytes each, half of that on average.
    const round = async (): Promise<number> => {
      const texts = Array.from({ length: 8 }, (_, index) => [index + 3, 7])
      const run = (promptTokenIds: number[]) =>
        generate(engine, { promptTokenIds, maxNewTokens: 254 })
      await Promise.all(texts.map(run))
      return process.memoryUsage.rss() / 2 ** 20
    }
    for (let warmUp = 0; warmUp < 3; warmUp += 1) await round()
    const before = await round()
    let after = before
    for (let more = 0; more < 6; more += 1) after = await round()
    await engine.close()
    // Kept, they would be 64 MiB a round.
    expect(after - before).toBeLessThan(150)
  })
})
