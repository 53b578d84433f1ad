import type { ElementType } from '#workers/tensor/element-type.ts'

import type { AttentionLayer } from './attention-layers.ts'
import type { ProbeTensor } from './graph-probe.ts'

/** Sizes of a layer's tensors. */
export interface HeadShape {
  readonly numHeads: number
  readonly numCacheHeads: number
  readonly headDim: number
  readonly type: 'float32' | 'float16'
  /** The cache inputs of all layers; some graphs count positions by their length. */
  readonly pasts: readonly string[]
  /** False for graphs that compute only whole texts; they run with empty caches. */
  readonly hasPast: boolean
  /** 3 if each position is a time, a row and a column. */
  readonly positionAxes: 1 | 3
  /** The embeddings, if the graph reads them instead of token ids. */
  readonly embedding?: { readonly size: number; readonly type: ElementType }
}

/** A run of `length` tokens after `past` others. */
export interface ProbeCase {
  readonly past: number
  readonly length: number
}

/** Names of the tensors from which an attention is computed. */
export interface LayerNames {
  readonly query: string
  readonly key: string
  readonly value: string
}

/** The element types of the inputs of an attention. */
export function boundaryOf(
  { pastKey, pastValue }: AttentionLayer,
  { query, key, value }: LayerNames,
  type: ElementType,
): Record<string, ElementType> {
  return { [query]: type, [key]: type, [value]: type, [pastKey]: type, [pastValue]: type }
}

/** Elements of an attention's tensors; a single number fills the tensor. */
interface Values {
  readonly query: ProbeTensor['values']
  readonly key: ProbeTensor['values']
  readonly value: ProbeTensor['values']
  readonly pastKey: ProbeTensor['values']
  readonly pastValue: ProbeTensor['values']
}

/** Creates the inputs for a run of a single attention. */
export function feedsOf(
  layer: AttentionLayer,
  names: LayerNames,
  shape: HeadShape,
  { past, length, values }: ProbeCase & { readonly values: Values },
): Record<string, ProbeTensor> {
  const { type, numHeads, numCacheHeads, headDim } = shape
  const cached = (size: number): number[] => [1, numCacheHeads, size, headDim]
  return {
    ...emptyFeeds(shape, past, length),
    [names.query]: { type, dims: [1, numHeads, length, headDim], values: values.query },
    [names.key]: { type, dims: cached(length), values: values.key },
    [names.value]: { type, dims: cached(length), values: values.value },
    [layer.pastKey]: { type, dims: cached(past), values: values.pastKey },
    [layer.pastValue]: { type, dims: cached(past), values: values.pastValue },
  }
}

/** Creates the inputs for `length` tokens after `past` others, with caches of zeros. */
export function emptyFeeds(
  shape: HeadShape,
  past: number,
  length: number,
): Record<string, ProbeTensor> {
  const { pasts, type, numCacheHeads, headDim, positionAxes, embedding } = shape
  const positions = Array.from({ length: positionAxes * length }, (_, at) => past + (at % length))
  const cache = { type, dims: [1, numCacheHeads, past, headDim], values: 0 }
  return {
    input_ids: { type: 'int64', dims: [1, length], values: 0 },
    ...(embedding && {
      inputs_embeds: { type: embedding.type, dims: [1, length, embedding.size], values: 0 },
    }),
    attention_mask: { type: 'int64', dims: [1, past + length], values: 1 },
    position_ids: {
      type: 'int64',
      dims: positionAxes === 1 ? [1, length] : [positionAxes, 1, length],
      values: positions,
    },
    ...Object.fromEntries(pasts.map((name) => [name, cache])),
  }
}

/** Pseudorandom elements between -1 and 1, the same in every call. */
export function randomValues(shape: HeadShape, past: number, length: number): Values {
  const { numHeads, numCacheHeads, headDim } = shape
  let state = 12_345
  const draw = (count: number): Float32Array => {
    const values = new Float32Array(count)
    for (let index = 0; index < count; index += 1) {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
      values[index] = state / 2 ** 31 - 1
    }
    return values
  }
  const cached = (size: number): Float32Array => draw(numCacheHeads * size * headDim)
  return {
    query: draw(numHeads * length * headDim),
    key: cached(length),
    value: cached(length),
    pastKey: cached(past),
    pastValue: cached(past),
  }
}
