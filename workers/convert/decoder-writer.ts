import {
  type Constant,
  float,
  type GraphNode,
  int,
  int64Constant,
  makeConstant,
  makeNode,
} from '#workers/graph/model.ts'

import type { DecoderShape } from './decoder-shape.ts'
import { type PlannedWeights, planBlocks, planTensor, planTransposed } from './planned-weights.ts'
import { BLOCK_SIZE, HEAD_BITS, type WeightForm } from './weight-forms.ts'

/** A linear layer: its name in the graph, the tensors of the checkpoint, its sizes. */
interface Linear {
  readonly module: string
  readonly inSize: number
  readonly outSize: number
}

/** Names of a model's parts in its checkpoint. */
export interface TensorNames {
  /** The prefix of layers: `model.`. */
  readonly decoder: string
  /** The prefix of the head. */
  readonly head: string
}

/**
 * Collects nodes, small constants and the plan of large ones. Names in the graph are those of
 * transformers, by which adapters find their layers.
 */
export class DecoderWriter {
  readonly nodes: GraphNode[] = []
  readonly constants: Constant[] = []
  readonly weights: PlannedWeights[] = []
  readonly form: WeightForm
  readonly #shape: DecoderShape
  readonly #names: TensorNames
  readonly #known = new Set<string>()

  constructor(shape: DecoderShape, form: WeightForm, names: TensorNames) {
    this.form = form
    this.#shape = shape
    this.#names = names
  }

  /** Adds a node with one output and returns its name. */
  add(
    operator: string,
    inputs: readonly string[],
    output: string,
    parts: Parameters<typeof makeNode>[3] = {},
  ): string {
    this.nodes.push(makeNode(operator, inputs, output, parts))
    return output
  }

  /** A scalar in the type of the graph. */
  scalar(value: number): string {
    const { type } = this.form
    const values = type === 'float16' ? Float16Array.of(value) : Float32Array.of(value)
    return this.#once(`number/${value}`, (name) => makeConstant(name, type, [], values))
  }

  /** A constant list of integers. */
  integers(...values: readonly number[]): string {
    return this.#once(`integers/${values.join('x')}`, (name) => int64Constant(name, values))
  }

  /** input · number, or the input if the number is 1. */
  scale(input: string, factor: number, output: string): string {
    return factor === 1 ? input : this.add('Mul', [input, this.scalar(factor)], output)
  }

  /** bound · tanh(input ÷ bound) */
  cap(input: string, bound: number | undefined, output: string): string {
    if (bound === undefined) return input
    const divided = this.add('Div', [input, this.scalar(bound)], `${output}/divided`)
    const bounded = this.add('Tanh', [divided], `${output}/bounded`)
    return this.add('Mul', [bounded, this.scalar(bound)], output)
  }

  /** An RMS norm over the last axis, which has this size. */
  norm(input: string, module: string, size: number): string {
    const { epsilon, family } = this.#shape
    const name = `${module}.gain`
    const { type } = this.form
    const change = family.addsOneToNorms === true ? (value: number) => value + 1 : undefined
    this.weights.push(
      planTensor(this.#source(module, 'weight', [size]), { name, type, ...(change && { change }) }),
    )
    return this.add('SimplifiedLayerNormalization', [input, name], `${module}/normed`, {
      attributes: { axis: int(-1), epsilon: float(epsilon) },
    })
  }

  /** input · weightsᵀ, with the bias if the family has one. */
  linear(input: string, { module, inSize, outSize }: Linear): string {
    const source = this.#source(module, 'weight', [outSize, inSize])
    const { type, bits } = this.form
    const output = `${module}/output`
    const lastName = module.slice(module.lastIndexOf('.') + 1)
    const hasBias = this.#shape.hasBias(lastName)
    const product = hasBias ? `${module}/product` : output
    if (bits === undefined) {
      const name = `${module}.matrix`
      this.weights.push(planTransposed(source, { name, type }))
      this.add('MatMul', [input, name], product)
    } else {
      const names = { codes: `${module}.matrix_Q${bits}`, scales: `${module}.scales` }
      this.weights.push(planBlocks(source, { names, bits }))
      this.#multiplyBlocks(input, product, { ...names, inSize, outSize, bits })
    }
    if (!hasBias) return output
    const name = `${module}.bias`
    this.weights.push(planTensor(this.#source(module, 'bias', [outSize]), { name, type }))
    return this.add('Add', [product, name], output)
  }

  /** The embeddings of tokens; with `isTied` the table also serves as the head. */
  embed(ids: string, isTied: boolean): string {
    const { hiddenSize, vocabSize, embeddingMultiplier } = this.#shape
    const source = {
      name: `${this.#names.decoder}embed_tokens.weight`,
      dims: [vocabSize, hiddenSize],
    }
    const embedded = this.#isInBlocks
      ? this.#embedBlocks(ids, source, isTied)
      : this.#embedNumbers(ids, source)
    return this.scale(embedded, embeddingMultiplier, 'embed_tokens/scaled')
  }

  /** The scores of all tokens. */
  head(input: string, isTied: boolean): string {
    const { hiddenSize, vocabSize } = this.#shape
    const sizes = { inSize: hiddenSize, outSize: vocabSize }
    const output = 'lm_head/output'
    const source = { name: `${this.#names.head}lm_head.weight`, dims: [vocabSize, hiddenSize] }
    if (this.#isInBlocks || (this.form.bits !== undefined && !isTied)) {
      if (!isTied) this.weights.push(planBlocks(source, { names: HEAD, bits: HEAD_BITS }))
      return this.#multiplyBlocks(input, output, { ...HEAD, ...sizes, bits: HEAD_BITS })
    }
    // Transposing a table of a gigabyte here would double its memory, so the runtime does it.
    const { type } = this.form
    if (!isTied) this.weights.push(planTensor(source, { name: 'lm_head.table', type }))
    const table = isTied ? TABLE.codes : 'lm_head.table'
    const perm = { kind: 'ints', value: [1n, 0n] } as const
    this.add('Transpose', [table], 'lm_head.matrix', { attributes: { perm } })
    return this.add('MatMul', [input, 'lm_head.matrix'], output)
  }

  /** Quantized tables consist of complete blocks. */
  get #isInBlocks(): boolean {
    return this.form.bits !== undefined && this.#shape.hiddenSize % BLOCK_SIZE === 0
  }

  #embedNumbers(ids: string, source: PlannedWeights['source'] & object): string {
    this.weights.push(planTensor(source, { name: TABLE.codes, type: this.form.type }))
    return this.add('Gather', [TABLE.codes, ids], 'embed_tokens/output')
  }

  #embedBlocks(ids: string, source: PlannedWeights['source'] & object, isTied: boolean): string {
    const names = { ...(isTied ? HEAD : UNUSED_MATRIX), table: TABLE }
    this.weights.push(planBlocks(source, { names, bits: HEAD_BITS }))
    return this.add(
      'GatherBlockQuantized',
      [TABLE.codes, ids, TABLE.scales],
      'embed_tokens/output',
      {
        domain: 'com.microsoft',
        attributes: {
          bits: int(HEAD_BITS),
          block_size: int(BLOCK_SIZE),
          gather_axis: int(0),
          quantize_axis: int(1),
        },
      },
    )
  }

  #multiplyBlocks(
    input: string,
    output: string,
    options: {
      readonly codes: string
      readonly scales: string
      readonly inSize: number
      readonly outSize: number
      readonly bits: number
    },
  ): string {
    const { codes, scales, inSize, outSize, bits } = options
    return this.add('MatMulNBits', [input, codes, scales], output, {
      domain: 'com.microsoft',
      attributes: {
        K: int(inSize),
        N: int(outSize),
        bits: int(bits),
        block_size: int(BLOCK_SIZE),
        accuracy_level: int(ACCURACY_LEVEL),
      },
    })
  }

  #source(module: string, part: string, dims: readonly number[]) {
    const name = module.replace(/^model\./, () => this.#names.decoder)
    return { name: `${name}.${part}`, dims }
  }

  #once(name: string, make: (name: string) => Constant): string {
    if (!this.#known.has(name)) this.constants.push(make(name))
    this.#known.add(name)
    return name
  }
}

/** Activations are quantized block by block to 8 bits, so that rows do not change each other. */
const ACCURACY_LEVEL = 4

const HEAD = { codes: `lm_head.matrix_Q${HEAD_BITS}`, scales: 'lm_head.scales' }
const TABLE = { codes: 'embed_tokens.table', scales: 'embed_tokens.table_scales' }
/** The same bytes in the shape of a matrix, which is unused if the head is separate. */
const UNUSED_MATRIX = { codes: 'embed_tokens.matrix', scales: 'embed_tokens.scales' }
