import { defined } from '#shared/json.ts'
import type { LowRank } from '#workers/adapters/peft-files.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { keyOf, philox4x32 } from '#workers/sampling/counter-random.ts'

import type { TrainedMatrices } from './training-graph.ts'

/** A matrix among the trained elements. */
interface Part {
  /** Its name as an input of the graph. */
  readonly name: string
  readonly gradientName: string
  readonly dims: readonly [number, number]
  readonly start: number
  readonly isFirst: boolean
}

/** Where each trained matrix lies in one array of all elements. */
export class MatrixLayout {
  readonly size: number
  readonly #parts: readonly Part[]
  readonly #matrices: readonly TrainedMatrices[]

  constructor(matrices: readonly TrainedMatrices[], rank: number) {
    this.#matrices = matrices
    let start = 0
    this.#parts = matrices.flatMap(({ module, a, b, gradientOfA, gradientOfB }) => {
      const { inSize, outSize } = module
      const first = { name: a, gradientName: gradientOfA, dims: [rank, inSize] as const, start }
      const second = { name: b, gradientName: gradientOfB, dims: [outSize, rank] as const }
      const middle = start + rank * inSize
      start = middle + outSize * rank
      return [
        { ...first, isFirst: true },
        { ...second, start: middle, isFirst: false },
      ]
    })
    this.size = start
  }

  /**
   * The elements before a training: A uniform within 1/√in on both sides of zero, as in PEFT, and B
   * zero, so that the model answers as before.
   */
  initialize(seed: number): Float32Array<ArrayBuffer> {
    const elements = new Float32Array(this.size)
    const key = keyOf(seed)
    for (const [number, { dims, start, isFirst }] of this.#parts.entries()) {
      if (!isFirst) continue
      const [rank, inSize] = dims
      const bound = 1 / Math.sqrt(inSize)
      for (let at = 0; at < rank * inSize; at += WORDS) {
        const words = philox4x32([at, number, INITIALIZATION, 0], key)
        for (let word = 0; word < Math.min(WORDS, rank * inSize - at); word += 1) {
          elements[start + at + word] = bound * ((2 * defined(words[word])) / 2 ** 32 - 1)
        }
      }
    }
    return elements
  }

  /** Tensors over the elements, by the names of the graph's inputs. */
  inputs(runtime: Runtime, elements: Float32Array): Readonly<Record<string, Tensor>> {
    return this.#tensors(runtime, elements, ({ name }) => name)
  }

  /** Tensors over the elements, by the names of the graph's outputs. */
  gradients(runtime: Runtime, elements: Float32Array): Readonly<Record<string, Tensor>> {
    return this.#tensors(runtime, elements, ({ gradientName }) => gradientName)
  }

  /** The matrices by the path of their module. */
  modules(
    elements: Float32Array,
  ): ReadonlyMap<string, Pick<LowRank, 'inSize' | 'outSize' | 'a' | 'b'>> {
    const byName = new Map(this.#parts.map((part) => [part.name, part]))
    const elementsOf = (name: string): Float32Array => {
      const { start, dims } = defined(byName.get(name))
      return elements.slice(start, start + dims[0] * dims[1])
    }
    return new Map(
      this.#matrices.map(({ module: { path, inSize, outSize }, a, b }) => [
        path,
        { inSize, outSize, a: elementsOf(a), b: elementsOf(b) },
      ]),
    )
  }

  #tensors(
    runtime: Runtime,
    elements: Float32Array,
    nameOf: (part: Part) => string,
  ): Readonly<Record<string, Tensor>> {
    return Object.fromEntries(
      this.#parts.map((part) => {
        const { start, dims } = part
        const own = elements.subarray(start, start + dims[0] * dims[1])
        return [nameOf(part), runtime.tensor('float32', own, dims)]
      }),
    )
  }
}

const WORDS = 4 // of one draw
/** The stream of these numbers among those of a seed. */
const INITIALIZATION = 1
