import type { Model } from '#workers/graph/model.ts'
import type { OperatorMarks } from '#workers/graph/operators.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { TensorSpec } from '#workers/runtime/specs.ts'
import type { ElementType } from '#workers/tensor/element-type.ts'

import { isCacheInput, isStateInput, presentOf } from './past-inputs.ts'

/** A pair of cache input and output: a layer's keys or values. */
export interface CachePair {
  readonly past: string
  readonly present: string
  readonly type: 'float32' | 'float16'
  readonly numHeads: number
  readonly headDim: number
}

/**
 * A pair of state input and output: the fixed-size state that a layer keeps of a text of any
 * length.
 */
export interface StatePair {
  readonly past: string
  readonly present: string
  readonly type: 'float32' | 'float16'
  /** The shape of one row. */
  readonly dims: readonly number[]
}

/** The embeddings of tokens that a decoder reads. */
export interface EmbeddingShape {
  readonly size: number
  readonly type: 'float32' | 'float16'
  /** The input of further embeddings of a token, one for each layer (Gemma 3n, Gemma 4). */
  readonly perLayer: TensorSpec | undefined
}

/** The properties of an exported decoder that the runners need. */
export interface DecoderGraph {
  /**
   * `inPlace`: past and present may be one buffer (GroupQueryAttention), or there is no attention.
   * `growing`: present is the past with the new positions appended.
   */
  readonly cacheStyle: 'inPlace' | 'growing'
  /** Empty where no layer has attention. */
  readonly cache: readonly CachePair[]
  /** States of layers without attention: short convolutions, state spaces, linear attention. */
  readonly states: readonly StatePair[]
  readonly logitsType: 'float32' | 'float16'
  readonly vocabSize: number
  /** The size and type of embeddings if the graph reads them instead of token ids. */
  readonly embedding: EmbeddingShape | undefined
  readonly hasPositionIds: boolean
  /** Three if each position is a time, a row and a column, as in Qwen2-VL. */
  readonly positionAxes: 1 | 3
  readonly hasAttentionMask: boolean
  /** Whether states read `attention_mask`; its last columns are those of the last tokens. */
  readonly areStatesMasked: boolean
  /** Old merged exports choose between their two branches by this input. */
  readonly hasCacheBranch: boolean
  /** The input that limits the logits to the last positions, if there is one. */
  readonly logitsToKeep: TensorSpec | undefined
  readonly givesAllLogits: boolean
  /**
   * Activations are quantized over the whole tensor, or masked scores are quantized, so that one
   * row, or the way a text is split into runs, changes the results of another; or the graph takes
   * one row. Such models run row by row in chunks of fixed size.
   */
  readonly isRowCoupled: boolean
}

const PER_LAYER = 'per_layer_inputs'

/** Reads a decoder's inputs and outputs. Throws `ModelLoadError` when the engine cannot run it. */
export function readDecoderGraph(
  session: {
    readonly file: string
    readonly inputs: readonly TensorSpec[]
    readonly outputs: readonly TensorSpec[]
  },
  marks: OperatorMarks & { readonly areStatesMasked?: boolean },
): DecoderGraph {
  const { file, inputs, outputs } = session
  const names = new Map(inputs.map((spec) => [spec.name, spec]))
  const logits = outputs.find((spec) => spec.name === 'logits')
  const vocabSize = logits?.dims.at(-1)
  const tokens = names.get('input_ids') ?? names.get('inputs_embeds')
  const isRead = tokens !== undefined && logits?.dims.length === 3
  if (!isRead || typeof vocabSize !== 'number') {
    throw new ModelLoadError(
      file,
      'not a decoder: it needs input_ids or inputs_embeds, and logits of [batch, length, vocabulary] of fixed width',
    )
  }
  const logitsToKeep = names.get('num_logits_to_keep') ?? names.get('logits_to_keep')
  const cache = readCache(file, inputs, outputs)
  const states = readStates(file, inputs, outputs)
  if (cache.length + states.length === 0) {
    refuseFixedCaches(file, inputs)
    throw new ModelLoadError(
      file,
      'the decoder was exported without a cache (past_key_values.*) and without states, and its attention is not recognized, so no cache can be added; export it with one, for example with `optimum-cli export onnx --task text-generation-with-past`',
    )
  }
  refuseUnknownInputs(file, inputs, [...cache, ...states], logitsToKeep)
  refuseFixedShapes(file, inputs)
  return {
    cacheStyle: marks.hasGroupQueryAttention || cache.length === 0 ? 'inPlace' : 'growing',
    cache,
    states,
    logitsType: floatType(file, logits),
    vocabSize,
    embedding: names.has('input_ids')
      ? undefined
      : readEmbedding(file, tokens, names.get(PER_LAYER)),
    hasPositionIds: names.has('position_ids'),
    positionAxes: names.get('position_ids')?.dims.length === 3 ? 3 : 1,
    hasAttentionMask: names.has('attention_mask'),
    areStatesMasked: marks.areStatesMasked ?? false,
    hasCacheBranch: names.has('use_cache_branch'),
    logitsToKeep,
    givesAllLogits: logits.dims[1] !== 1,
    isRowCoupled: marks.hasDynamicQuantization || marks.hasQuantizedMask || tokens.dims[0] === 1,
  }
}

/** Throws if an input looks like a cache of a fixed length. */
function refuseFixedCaches(file: string, inputs: readonly TensorSpec[]): void {
  const isCache = ({ name, dims }: TensorSpec): boolean =>
    dims.length === 4 && /cache|past|key|value/i.test(name)
  const fixed = inputs.find(isCache)
  if (fixed === undefined) return
  throw new ModelLoadError(
    file,
    `${fixed.name} is not a cache that grows with the text; caches of a fixed length (StaticCache, TensorScatter) are not supported: export the model with a DynamicCache`,
  )
}

function readEmbedding(
  file: string,
  spec: TensorSpec,
  perLayer: TensorSpec | undefined,
): EmbeddingShape {
  const size = spec.dims.at(-1)
  if (spec.dims.length === 3 && typeof size === 'number')
    return { size, type: floatType(file, spec), perLayer }
  throw new ModelLoadError(file, `${spec.name} must be [batch, length, size] of one size`)
}

function readCache(
  file: string,
  inputs: readonly TensorSpec[],
  outputs: readonly TensorSpec[],
): CachePair[] {
  const pasts = inputs.filter(({ name }) => isCacheInput(name))
  return pasts.map((spec) => {
    const present = presentOf(spec.name)
    const output = outputs.find(({ name }) => name === present)
    const [, numHeads, , headDim] = spec.dims
    if (output === undefined || typeof numHeads !== 'number' || typeof headDim !== 'number') {
      throw new ModelLoadError(file, `${spec.name} is not a cache of [batch, heads, length, size]`)
    }
    return { past: spec.name, present, type: floatType(file, spec), numHeads, headDim }
  })
}

function readStates(
  file: string,
  inputs: readonly TensorSpec[],
  outputs: readonly TensorSpec[],
): StatePair[] {
  const pasts = inputs.filter(({ name }) => isStateInput(name))
  return pasts.map((spec) => {
    const present = presentOf(spec.name)
    const [rows, ...dims] = spec.dims
    const isState = typeof rows === 'string' && dims.every((dim) => typeof dim === 'number')
    if (!isState || !outputs.some(({ name }) => name === present)) {
      throw new ModelLoadError(
        file,
        `${spec.name} is not a state of [batch, …] of any batch and one size with an output ${present}`,
      )
    }
    return { past: spec.name, present, type: floatType(file, spec), dims }
  })
}

/** Whether states of a decoder depend on `attention_mask` other than through attention. */
export function findMaskedStates({ graph }: Model): boolean {
  const reached = new Set(['attention_mask'])
  // Nodes are in the order of their computation.
  for (const { operator, inputs, outputs } of graph.nodes) {
    if (operator === 'GroupQueryAttention') continue
    if (inputs.some((name) => reached.has(name))) for (const name of outputs) reached.add(name)
  }
  const states = graph.inputs.flatMap(({ name }) => (isStateInput(name) ? [presentOf(name)] : []))
  return states.some((name) => reached.has(name))
}

function floatType(file: string, spec: TensorSpec): 'float32' | 'float16' {
  const type: ElementType | undefined = spec.type
  if (type === 'float32' || type === 'float16') return type
  throw new ModelLoadError(file, `${spec.name} must be float32 or float16, not ${type ?? 'other'}`)
}

function refuseUnknownInputs(
  file: string,
  inputs: readonly TensorSpec[],
  cache: readonly Pick<CachePair, 'past'>[],
  logitsToKeep: TensorSpec | undefined,
): void {
  const known = new Set([
    'input_ids',
    'inputs_embeds',
    // Only a graph that embeds tokens makes them.
    inputs.some(({ name }) => name === 'inputs_embeds') ? PER_LAYER : undefined,
    'attention_mask',
    'position_ids',
    'use_cache_branch',
    logitsToKeep?.name,
    ...cache.map(({ past }) => past),
  ])
  const unknown = inputs.find(({ name }) => !known.has(name))
  if (unknown) throw new ModelLoadError(file, `the decoder needs an unknown input ${unknown.name}`)
}

/** Inputs with any number of rows and tokens: both axes, and the accepted shape. */
const FREE_SHAPES = {
  integers: { axes: [0, 1], rank: 2, wanted: '[batch, length]' },
  positions: { axes: [1, 2], rank: 3, wanted: '[3, batch, length]' },
  embeddings: { axes: [0, 1], rank: 3, wanted: '[batch, length, size]' },
  perLayer: { axes: [0, 1], rank: 4, wanted: '[batch, length, layers, size]' },
  cache: { axes: [0, 2], rank: 4, wanted: '[batch, heads, length, size]' },
} as const

function freeShapeOf({ name, dims }: TensorSpec): keyof typeof FREE_SHAPES | undefined {
  if (isCacheInput(name)) return 'cache'
  if (name === 'inputs_embeds') return 'embeddings'
  if (name === PER_LAYER) return 'perLayer'
  if (name === 'position_ids' && dims.length === 3) return 'positions'
  return ['input_ids', 'attention_mask', 'position_ids'].includes(name) ? 'integers' : undefined
}

/** Runs have any number of rows and tokens; integers are passed with 64 bits. */
function refuseFixedShapes(file: string, inputs: readonly TensorSpec[]): void {
  for (const spec of inputs) {
    const kind = freeShapeOf(spec)
    if (kind === undefined) continue
    const { name, type, dims } = spec
    const isInteger = kind === 'integers' || kind === 'positions'
    if (isInteger && type !== 'int64') {
      throw new ModelLoadError(file, `${name} must be int64, not ${type ?? 'other'}`)
    }
    const { axes, rank, wanted } = FREE_SHAPES[kind]
    const isFree = (axis: number, place: number): boolean =>
      typeof dims[axis] === 'string' || (place === 0 && dims[axis] === 1)
    if (dims.length === rank && axes.every(isFree)) continue
    const shape = dims.map((dim) => (dim === '' ? '?' : dim)).join(', ')
    const isStepwise = kind === 'integers' && dims[1] === 1
    const remedy = isStepwise
      ? '; export it with multi_token_decode=True, or use prefill.onnx beside it (options.onnxFile: prefill)'
      : ''
    throw new ModelLoadError(
      file,
      `${name} must be ${wanted} of any batch and length, not [${shape}]${remedy}`,
    )
  }
}
