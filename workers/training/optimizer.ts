import { defined } from '#shared/json.ts'

/** Settings of AdamW as PyTorch and PEFT have them by default. */
const BETA_1 = 0.9
const BETA_2 = 0.999
const EPSILON = 1e-8
const GRADIENT_NORM_MAX = 1
/** Elements that are updated before the event loop runs again: about a millisecond. */
const SLICE = 1 << 16

const WARM_UP_SHARE = 0.03

/**
 * AdamW (Loshchilov and Hutter, 2019) over all trained elements, without decay of weights. The
 * moments and the elements are float32, as in PyTorch.
 */
export class AdamW {
  readonly elements: Float32Array<ArrayBuffer>
  /** Running means of the gradients and of their squares. */
  readonly moments: readonly [Float32Array<ArrayBuffer>, Float32Array<ArrayBuffer>]
  #steps: number

  constructor(
    elements: Float32Array<ArrayBuffer>,
    state: {
      readonly steps: number
      readonly moments?: readonly [Float32Array<ArrayBuffer>, Float32Array<ArrayBuffer>]
    } = { steps: 0 },
  ) {
    this.elements = elements
    this.#steps = state.steps
    const { length } = elements
    this.moments = state.moments ?? [new Float32Array(length), new Float32Array(length)]
  }

  get steps(): number {
    return this.#steps
  }

  /** Moves the elements against their gradients, which are first scaled to a norm of at most 1. */
  async step(
    gradients: Float32Array,
    learningRate: number,
    yieldNow: () => Promise<void>,
  ): Promise<void> {
    const norm = await normOf(gradients, yieldNow)
    const clip = norm > GRADIENT_NORM_MAX ? GRADIENT_NORM_MAX / (norm + 1e-6) : 1
    this.#steps += 1
    const rate = learningRate / (1 - BETA_1 ** this.#steps)
    const correction = Math.sqrt(1 - BETA_2 ** this.#steps)
    for (let from = 0; from < gradients.length; from += SLICE) {
      const to = Math.min(from + SLICE, gradients.length)
      this.#update(gradients, { from, to, clip, rate, correction })
      await yieldNow()
    }
  }

  #update(
    gradients: Float32Array,
    part: {
      readonly from: number
      readonly to: number
      readonly clip: number
      readonly rate: number
      readonly correction: number
    },
  ): void {
    const { from, to, clip, rate, correction } = part
    const [means, squares] = this.moments
    const { elements } = this
    for (let index = from; index < to; index += 1) {
      const gradient = defined(gradients[index]) * clip
      const mean = BETA_1 * defined(means[index]) + (1 - BETA_1) * gradient
      const square = BETA_2 * defined(squares[index]) + (1 - BETA_2) * gradient * gradient
      means[index] = mean
      squares[index] = square
      const root = Math.sqrt(square) / correction + EPSILON
      elements[index] = defined(elements[index]) - (rate * mean) / root
    }
  }
}

async function normOf(gradients: Float32Array, yieldNow: () => Promise<void>): Promise<number> {
  let sum = 0
  for (let from = 0; from < gradients.length; from += SLICE) {
    for (const gradient of gradients.subarray(from, from + SLICE)) sum += gradient * gradient
    await yieldNow()
  }
  return Math.sqrt(sum)
}

/** The learning rate of a step, from 0: a linear warm-up, then half a cosine down to zero. */
export function learningRateAt(step: number, steps: number, peak: number): number {
  const warmUp = Math.ceil(steps * WARM_UP_SHARE)
  if (step < warmUp) return (peak * (step + 1)) / (warmUp + 1)
  const share = (step - warmUp) / Math.max(steps - warmUp, 1)
  return (peak * (1 + Math.cos(Math.PI * share))) / 2
}
