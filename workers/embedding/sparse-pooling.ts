import { setImmediate } from 'node:timers/promises'

import type { SparseHead } from './sparse-head.ts'

/** Weights of the tokens of a vocabulary; absent ones are zero. */
export interface SparseVector {
  /** Token ids, ascending. */
  readonly indices: Uint32Array
  readonly values: Float32Array
}

/** The output of a graph for one text of a batch. */
interface TextOutput {
  /** The rows of all texts, one for each token. */
  readonly values: ArrayLike<number>
  /** The row of the first token. */
  readonly first: number
  readonly tokenIds: readonly number[]
}

// A few milliseconds of reading logits.
const SLICE_VALUES = 2 ** 20

/**
 * SPLADE (Formal 2021): the weight of a token of the vocabulary is the largest log(1 + relu(logit))
 * over the tokens of the text, or their sum. Large vocabularies take milliseconds, between which
 * the event loop runs.
 */
export async function poolLogits(
  { values, first, tokenIds }: TextOutput,
  { strategy, logarithms, width }: SparseHead & { readonly width: number },
): Promise<SparseVector> {
  const weightOf = (logit: number): number =>
    logarithms === 1 ? Math.log1p(logit) : Math.log1p(Math.log1p(logit))
  const pooled = new Float32Array(width)
  let readCount = 0
  for (const position of tokenIds.keys()) {
    const start = (first + position) * width
    for (let id = 0; id < width; id++) {
      const logit = values[start + id] as number
      if (!(logit > 0)) continue
      const before = pooled[id] as number
      pooled[id] = strategy === 'sum' ? before + weightOf(logit) : Math.max(before, logit)
    }
    readCount += width
    if (readCount < SLICE_VALUES) continue
    readCount = 0
    await setImmediate()
  }
  // The logarithm is monotonic, so it is only taken of the largest logit.
  return withoutZeros(strategy === 'sum' ? pooled : pooled.map(weightOf))
}

/**
 * BGE-M3 (Chen 2024): the graph computes one weight for each token of the text. The largest weight
 * of each token counts; special tokens have none.
 */
export function poolWeights(
  { values, first, tokenIds }: TextOutput,
  isSpecial: (tokenId: number) => boolean,
): SparseVector {
  const largest = new Map<number, number>()
  for (const [position, id] of tokenIds.entries()) {
    const weight = values[first + position] as number
    if (weight > (largest.get(id) ?? 0) && !isSpecial(id)) largest.set(id, weight)
  }
  const indices = Uint32Array.from(largest.keys()).sort()
  return { indices, values: Float32Array.from(indices, (id) => largest.get(id) as number) }
}

function withoutZeros(weights: Float32Array): SparseVector {
  const indices: number[] = []
  for (const [id, weight] of weights.entries()) if (weight > 0) indices.push(id)
  return {
    indices: Uint32Array.from(indices),
    values: Float32Array.from(indices, (id) => weights[id] as number),
  }
}
