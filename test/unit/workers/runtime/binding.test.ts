import { afterAll, beforeEach, describe, expect, it } from 'vitest'

import { openRuntime } from '#workers/runtime/runtime.ts'
import type { Binding, ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import { LOOP_FILE } from './decoder-feeds.ts'

const runtime = openRuntime()
afterAll(() => runtime.close())

/** The 2 by 2 matrix after `trips` times x = tanh(x · x). */
function computeLoop(matrix: readonly number[], trips: number): number[] {
  let [a, b, c, d] = matrix as [number, number, number, number]
  for (let trip = 0; trip < trips; trip += 1) {
    const square = [a * a + b * c, a * b + b * d, c * a + d * c, c * b + d * d]
    ;[a, b, c, d] = square.map(Math.tanh) as [number, number, number, number]
  }
  return [a, b, c, d]
}

function trips(count: number): Tensor {
  return runtime.tensor('int64', BigInt64Array.of(BigInt(count)), [])
}

function matrix(...values: number[]): Tensor {
  return runtime.tensor('float32', Float32Array.from(values), [2, 2])
}

describe('bound tensors', () => {
  const values = [0.5, -0.25, 0.75, 1]
  let session: ModelSession
  let binding: Binding
  let y: Tensor
  beforeEach(async () => {
    session = await runtime.load(LOOP_FILE, { intraOpThreads: 1 })
    binding = session.bind()
    y = matrix(0, 0, 0, 0)
    binding.setInput('trips', trips(1))
    binding.setInput('x', matrix(...values))
    binding.setOutput('y', y)
  })

  function expectResult(expected: readonly number[]): void {
    for (const [index, value] of expected.entries()) expect(y.data[index]).toBeCloseTo(value, 5)
  }

  it('stay for the next run, which names only the changed ones', async () => {
    await binding.run()
    expectResult(computeLoop(values, 1))
    binding.setInput('trips', trips(3))
    await binding.run()
    expectResult(computeLoop(values, 3))
    binding.setInput('x', matrix(1, 2, 3, 4))
    await binding.run()
    expectResult(computeLoop([1, 2, 3, 4], 3))
  })

  it('may be in the memory of the session’s device', async () => {
    const memory = session.openMemory()
    const between = memory.allocate('float32', [2, 2])
    binding.setOutput('y', between)
    await binding.run()
    binding.setInput('x', between)
    binding.setOutput('y', y)
    await binding.run()
    expectResult(computeLoop(values, 2))
    binding.release()
    between.dispose()
    memory.release()
  })

  it('are refused by name if they do not fit', () => {
    const problem = (name: string, tensor: Tensor, side: 'setInput' | 'setOutput') => {
      try {
        binding[side](name, tensor)
      } catch (error) {
        return error
      }
      return undefined
    }
    const cases = [
      ['z', y, 'setInput', 'unknownInput'],
      ['x', y, 'setOutput', 'unknownOutput'],
      ['x', trips(1), 'setInput', 'wrongType'],
      ['trips', runtime.tensor('int64', BigInt64Array.of(1n), [1]), 'setInput', 'wrongShape'],
    ] as const
    for (const [name, tensor, side, expected] of cases) {
      expect(problem(name, tensor, side)).toMatchObject({ problem: expected, tensorName: name })
    }
  })

  it('end with their session, which waits for a run', async () => {
    const running = binding.run()
    await session.close()
    await running
    expectResult(computeLoop(values, 1))
    await expect(binding.run()).rejects.toMatchObject({ problem: 'closed' })
    binding.release()
  })

  it('report a run that fails, and can be used again', async () => {
    binding.setInput('x', runtime.tensor('float32', new Float32Array(6), [2, 3]))
    await expect(binding.run()).rejects.toMatchObject({ problem: 'failed' })
    binding.setInput('x', matrix(...values))
    await binding.run()
    expectResult(computeLoop(values, 1))
  })
})
