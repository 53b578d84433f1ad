import { withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import {
  type Constant,
  float,
  type GraphValue,
  int,
  type Model,
  makeModel,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'

import type { DecoderShape } from './decoder-shape.ts'
import { DecoderWriter, type TensorNames } from './decoder-writer.ts'
import type { PlannedWeights } from './planned-weights.ts'
import { Positions } from './positions.ts'
import type { WeightForm } from './weight-forms.ts'

/** A decoder to be written: its weights, and its graph once they are in their file. */
export interface DecoderPlan {
  readonly weights: readonly PlannedWeights[]
  makeModel(stored: readonly Constant[]): Model
}

const OPSETS = [
  { domain: '', version: 17 },
  { domain: 'com.microsoft', version: 1 },
]
const IR_VERSION = 9

/**
 * Lays out the graph of a decoder. Attention is GroupQueryAttention, whose past and present may
 * share one buffer.
 */
export function planDecoder(
  shape: DecoderShape,
  { form, names, isTied }: { form: WeightForm; names: TensorNames; isTied: boolean },
): DecoderPlan {
  const writer = new DecoderWriter(shape, form, names)
  const positions = new Positions(writer, shape)
  const parts = { writer, positions, shape }
  let hidden = writer.embed('input_ids', isTied)
  for (const layer of shape.layers.keys()) hidden = addLayer(parts, layer, hidden)
  const last = writer.add(
    'Slice',
    [hidden, positions.firstKept(), writer.integers(END), writer.integers(1)],
    'kept',
  )
  const normed = writer.norm(last, 'model.norm', shape.hiddenSize)
  const scores = writer.scale(writer.head(normed, isTied), shape.logitMultiplier, 'scaled')
  writer.add('Identity', [writer.cap(scores, shape.logitCap, 'capped')], 'logits')
  return {
    weights: writer.weights,
    makeModel(stored) {
      const model = makeModel({
        name: 'decoder',
        nodes: writer.nodes,
        constants: [...writer.constants, ...stored],
        ...valuesOf(shape, form, positions),
        opsets: OPSETS,
        irVersion: IR_VERSION,
      })
      return { ...model, graph: withoutUnused(new GraphView(model.graph)) }
    },
  }
}

/** The value for the end of an axis in Slice. */
const END = 2 ** 53 - 1

function valuesOf(
  { layers, numCacheHeads, headDim, vocabSize }: DecoderShape,
  { type }: WeightForm,
  positions: Positions,
): { readonly inputs: GraphValue[]; readonly outputs: GraphValue[] } {
  const pairs = layers.flatMap((_, layer) => [`${layer}.key`, `${layer}.value`])
  const cache = (name: string, length: string): GraphValue =>
    makeValue(name, type, ['batch_size', numCacheHeads, length, headDim])
  const tokens = ['batch_size', 'sequence_length']
  return {
    inputs: [
      makeValue('input_ids', 'int64', tokens),
      makeValue('attention_mask', 'int64', ['batch_size', 'total_sequence_length']),
      ...(positions.areRead ? [makeValue('position_ids', 'int64', tokens)] : []),
      makeValue('num_logits_to_keep', 'int64', []),
      ...pairs.map((pair) => cache(`past_key_values.${pair}`, 'past_sequence_length')),
    ],
    outputs: [
      makeValue('logits', type, ['batch_size', 'num_logits', vocabSize]),
      ...pairs.map((pair) => cache(`present.${pair}`, 'present_sequence_length')),
    ],
  }
}

/** The tools that write the layers of a decoder. */
interface Parts {
  readonly writer: DecoderWriter
  readonly positions: Positions
  readonly shape: DecoderShape
}

function addLayer(parts: Parts, layer: number, input: string): string {
  const { writer, shape } = parts
  const { family, hiddenSize, residualMultiplier } = shape
  const { beforeAttention, afterAttention, beforeNetwork, afterNetwork } = family.norms
  const module = `model.layers.${layer}`
  const norm = (tensor: string, name: string | undefined): string =>
    name === undefined ? tensor : writer.norm(tensor, `${module}.${name}`, hiddenSize)
  const residual = (tensor: string, added: string, output: string): string => {
    const scaled = writer.scale(added, residualMultiplier, `${output}/scaled`)
    return writer.add('Add', [tensor, scaled], output)
  }
  const attended = addAttention(parts, layer, norm(input, beforeAttention))
  const middle = residual(input, norm(attended, afterAttention), `${module}/middle`)
  const network = addNetwork(parts, `${module}.mlp`, norm(middle, beforeNetwork))
  return residual(middle, norm(network, afterNetwork), `${module}/output`)
}

function addAttention(parts: Parts, layer: number, input: string): string {
  const { writer, positions, shape } = parts
  const { numHeads, numCacheHeads, headDim, hiddenSize, scoreScale, scoreCap } = shape
  const { window, rotation } = shape.layers[layer] as DecoderShape['layers'][number]
  const module = `model.layers.${layer}.self_attn`
  const [query, key, value] = projections(parts, module, input)
  const rotated = rotation && positions.rotate(rotation, module, { query, key })
  const tables = rotated?.tables ?? []
  const output = `${module}/attended`
  writer.nodes.push(
    makeNode(
      'GroupQueryAttention',
      [
        rotated?.query ?? query,
        rotated?.key ?? key,
        value,
        `past_key_values.${layer}.key`,
        `past_key_values.${layer}.value`,
        ...positions.lengths(),
        ...tables,
      ],
      [output, `present.${layer}.key`, `present.${layer}.value`],
      {
        domain: 'com.microsoft',
        attributes: {
          num_heads: int(numHeads),
          kv_num_heads: int(numCacheHeads),
          scale: float(scoreScale),
          ...(tables.length > 0 && { do_rotary: int(1) }),
          ...(window !== undefined && { local_window_size: int(window) }),
          ...(scoreCap !== undefined && { softcap: float(scoreCap) }),
        },
      },
    ),
  )
  const sizes = { inSize: numHeads * headDim, outSize: hiddenSize }
  return writer.linear(output, { module: `${module}.o_proj`, ...sizes })
}

/** Query, key and value, with their norms if the family has them. */
function projections(
  { writer, shape }: Parts,
  module: string,
  input: string,
): [string, string, string] {
  const { family, numHeads, numCacheHeads, headDim, hiddenSize } = shape
  const widths = [numHeads, numCacheHeads, numCacheHeads].map((heads) => heads * headDim)
  const names = ['q', 'k', 'v']
  const tensors = family.isFused
    ? split(writer, { module: `${module}.qkv_proj`, inSize: hiddenSize, widths }, input)
    : names.map((name, index) => {
        const sizes = { inSize: hiddenSize, outSize: widths[index] as number }
        return writer.linear(input, { module: `${module}.${name}_proj`, ...sizes })
      })
  const [query, key, value] = tensors as [string, string, string]
  if (family.headNorms === undefined) return [query, key, value]
  const norm = (tensor: string, name: string, width: number): string =>
    family.headNorms === 'projection'
      ? writer.norm(tensor, `${module}.${name}`, width)
      : normHeads(writer, tensor, { module: `${module}.${name}`, headDim })
  const [queryWidth = 0, keyWidth = 0] = widths
  return [norm(query, 'q_norm', queryWidth), norm(key, 'k_norm', keyWidth), value]
}

function normHeads(
  writer: DecoderWriter,
  tensor: string,
  { module, headDim }: { readonly module: string; readonly headDim: number },
): string {
  const heads = writer.integers(0, 0, -1, headDim)
  const shaped = writer.add('Reshape', [tensor, heads], `${module}/heads`)
  const normed = writer.norm(shaped, module, headDim)
  return writer.add('Reshape', [normed, writer.integers(0, 0, -1)], `${module}/joined`)
}

/** The parts of a fused linear layer. */
function split(
  writer: DecoderWriter,
  { module, inSize, widths }: { module: string; inSize: number; widths: readonly number[] },
  input: string,
): string[] {
  const outSize = widths.reduce((sum, width) => sum + width, 0)
  const whole = writer.linear(input, { module, inSize, outSize })
  const outputs = widths.map((_, index) => `${module}/part_${index}`)
  const attributes = { axis: int(-1) }
  writer.nodes.push(makeNode('Split', [whole, writer.integers(...widths)], outputs, { attributes }))
  return outputs
}

/** down(activation(gate(input)) · up(input)) */
function addNetwork({ writer, shape }: Parts, module: string, input: string): string {
  const { family, hiddenSize, innerSize, activation } = shape
  const widths = [innerSize, innerSize]
  const tensors = family.isFused
    ? split(writer, { module: `${module}.gate_up_proj`, inSize: hiddenSize, widths }, input)
    : ['gate', 'up'].map((name) => {
        const sizes = { inSize: hiddenSize, outSize: innerSize }
        return writer.linear(input, { module: `${module}.${name}_proj`, ...sizes })
      })
  const [gate, up] = tensors as [string, string]
  const active = ACTIVATION_NODES[activation](writer, gate, `${module}/active`)
  const gated = writer.add('Mul', [active, up], `${module}/gated`)
  return writer.linear(gated, {
    module: `${module}.down_proj`,
    inSize: innerSize,
    outSize: hiddenSize,
  })
}

const ACTIVATION_NODES: Readonly<
  Record<
    DecoderShape['activation'],
    (writer: DecoderWriter, input: string, output: string) => string
  >
> = {
  silu(writer, input, output) {
    const sigmoid = writer.add('Sigmoid', [input], `${output}/sigmoid`)
    return writer.add('Mul', [input, sigmoid], output)
  },
  gelu: (writer, input, output) => writer.add('Gelu', [input], output, { domain: 'com.microsoft' }),
  geluTanh: (writer, input, output) =>
    writer.add('FastGelu', [input], output, { domain: 'com.microsoft' }),
}
