import {
  type Constant,
  float,
  type GraphNode,
  int,
  int64Constant,
  ints,
  makeNode,
} from '#workers/graph/model.ts'
import { ELEMENT_TYPES, type ElementType } from '#workers/tensor/element-type.ts'

/** The settings of a GroupQueryAttention. */
export interface AttentionSettings {
  readonly numHeads: number
  readonly numCacheHeads: number
  readonly headDim: number
  readonly scale: number
  /** Positions that a token sees, itself among them; undefined for all. */
  readonly window: number | undefined
  readonly softcap: number | undefined
  /**
   * The type of the output, if the graph continues in another precision than that of its caches.
   */
  readonly outputType?: ElementType
}

/** Names of the tensors of a GroupQueryAttention. */
interface AttentionNames {
  readonly query: string
  readonly key: string
  readonly value: string
  readonly pastKey: string
  readonly pastValue: string
  readonly presentKey: string
  readonly presentValue: string
  readonly output: string
  /** Rotation tables, [positions, half of the rotated size]. */
  readonly tables: { readonly cos: string; readonly sin: string } | undefined
}

/** Tensors that every GroupQueryAttention of a graph reads. */
const LENGTHS = { last: 'seqlens_k', total: 'total_sequence_length' }

const INT32 = { attributes: { to: int(6) } }

/** Computes the lengths of rows, from a mask that is padded on the right, for every layer. */
export function lengthNodes(): { nodes: GraphNode[]; constants: Constant[] } {
  return {
    nodes: [
      makeNode('ReduceSum', ['attention_mask', 'rewrite/last_axis'], 'rewrite/lengths', {
        attributes: { keepdims: int(0) },
      }),
      makeNode('Sub', ['rewrite/lengths', 'rewrite/one'], 'rewrite/last'),
      makeNode('Cast', ['rewrite/last'], LENGTHS.last, INT32),
      makeNode('Shape', ['attention_mask'], 'rewrite/mask_shape'),
      makeNode('Gather', ['rewrite/mask_shape', 'rewrite/one'], 'rewrite/total'),
      makeNode('Cast', ['rewrite/total'], LENGTHS.total, INT32),
    ],
    constants: [int64Constant('rewrite/last_axis', [1]), int64Constant('rewrite/one', [1])],
  }
}

/** Shapes that `attentionNodes` needs. */
export function shapeConstants({ numHeads, headDim }: AttentionSettings): Constant[] {
  return [
    int64Constant('rewrite/packed', [0, 0, -1]),
    int64Constant(headsName({ numHeads, headDim }), [0, 0, numHeads, headDim]),
  ]
}

/**
 * A GroupQueryAttention over query, key and value of [batch, heads, length, size]. Transpositions
 * that cancel each other are omitted: `untransposed` returns the source of one, and `isTransposed`
 * means that the output is wanted as [batch, length, heads, size].
 */
export function attentionNodes(
  names: AttentionNames,
  settings: AttentionSettings,
  layout: {
    readonly untransposed: (tensor: string) => string | undefined
    readonly isTransposed: boolean
  },
): GraphNode[] {
  const { numHeads, numCacheHeads, scale, window, softcap, outputType } = settings
  const { pastKey, pastValue, presentKey, presentValue, output, tables } = names
  const nodes: GraphNode[] = []
  const pack = (tensor: string): string => {
    const source = layout.untransposed(tensor) ?? `${output}/${tensor}/transposed`
    if (layout.untransposed(tensor) === undefined) {
      nodes.push(makeNode('Transpose', [tensor], source, TRANSPOSED))
    }
    const packed = `${output}/${tensor}/packed`
    nodes.push(makeNode('Reshape', [source, 'rewrite/packed'], packed))
    return packed
  }
  const packed = [names.query, names.key, names.value].map(pack)
  const joined = `${output}/joined`
  nodes.push(
    makeNode(
      'GroupQueryAttention',
      [
        ...packed,
        pastKey,
        pastValue,
        LENGTHS.last,
        LENGTHS.total,
        ...(tables ? [tables.cos, tables.sin] : []),
      ],
      [joined, presentKey, presentValue],
      {
        domain: 'com.microsoft',
        attributes: {
          num_heads: int(numHeads),
          kv_num_heads: int(numCacheHeads),
          scale: float(scale),
          ...(tables && { do_rotary: int(1) }),
          ...(window !== undefined && { local_window_size: int(window) }),
          ...(softcap !== undefined && { softcap: float(softcap) }),
        },
      },
    ),
  )
  const whole = outputType === undefined ? output : `${output}/uncast`
  const split = layout.isTransposed ? whole : `${output}/split`
  nodes.push(makeNode('Reshape', [joined, headsName(settings)], split))
  if (!layout.isTransposed) nodes.push(makeNode('Transpose', [split], whole, TRANSPOSED))
  if (outputType !== undefined) {
    const to = int(ELEMENT_TYPES[outputType].onnxType)
    nodes.push(makeNode('Cast', [whole], output, { attributes: { to } }))
  }
  return nodes
}

const TRANSPOSED = { attributes: { perm: ints(0, 2, 1, 3) } }

function headsName({ numHeads, headDim }: Pick<AttentionSettings, 'numHeads' | 'headDim'>): string {
  return `rewrite/heads_${numHeads}x${headDim}`
}
