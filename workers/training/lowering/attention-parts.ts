import type { GraphView } from '#workers/graph/graph-view.ts'
import {
  type GraphNode,
  type GraphValue,
  int,
  int64Constant,
  ints,
  makeValue,
} from '#workers/graph/model.ts'
import { untrainable } from '#workers/training/autodiff/gradient-context.ts'
import { floatOf, GraphWriter, intOf, type Parts } from '#workers/training/graph-writer.ts'

/** Number of each token's position within its text, and of its text within its row. */
const POSITION_IDS = 'position_ids'
const SEGMENT_IDS = 'segment_ids'

/** Low enough that the exponential of a score is zero; infinity would turn 0 · ∞ into NaN. */
const MASKED_SCORE = -1e9
/** As the operator writes that a token sees everything before it. */
const NO_WINDOW = -1

interface AttentionParts {
  readonly groupQuery: Parts
  /** Inputs that the parts read beside those of the graph. */
  inputs(): readonly GraphValue[]
  /** Nodes that all layers read. */
  sharedNodes(): readonly GraphNode[]
  isUsed(): boolean
}

/** Makes the parts of attention; the masks are shared by the layers of a graph. */
export function createAttentionParts(writer: GraphWriter, view: GraphView): AttentionParts {
  const shared = new GraphWriter('attention', writer.opset)
  const masks = new Map<string, string>()
  let rotates = false
  const maskOf = (window: number, groups: number): string => {
    const key = `${window}/${groups}`
    const known = masks.get(key) ?? writeMask(shared, { window, groups })
    masks.set(key, known)
    return known
  }
  return {
    groupQuery: (node, target) => {
      const settings = readSettings(node, view)
      rotates ||= settings.rotates
      const mask = maskOf(settings.window, settings.numHeads / settings.numCacheHeads)
      for (const constant of shared.constants) writer.adopt(constant)
      writeAttention(node, target, { ...settings, mask })
    },
    inputs: () => {
      const dims = ['batch_size', 'sequence_length']
      const hasPositions = view.graph.inputs.some(({ name }) => name === POSITION_IDS)
      return [
        ...(masks.size > 0 ? [makeValue(SEGMENT_IDS, 'int64', dims)] : []),
        ...(rotates && !hasPositions ? [makeValue(POSITION_IDS, 'int64', dims)] : []),
      ]
    },
    sharedNodes: () => shared.nodes,
    isUsed: () => masks.size > 0,
  }
}

interface Settings {
  readonly numHeads: number
  readonly numCacheHeads: number
  readonly headDim: number
  readonly scale: number
  readonly softcap: number
  readonly window: number
  readonly rotates: boolean
  readonly isInterleaved: boolean
}

const UNSUPPORTED_INPUTS = { from: 10, names: ['attention_bias', 'head_sink', 'k_scale'] }

function readSettings(node: GraphNode, view: GraphView): Settings {
  const past = view.graph.inputs.find(({ name }) => name === node.inputs[3])
  const headDim = past?.dims?.at(-1)
  if (typeof headDim !== 'number') throw untrainable(node, 'the size of its heads is not stated')
  const extra = node.inputs.findIndex(
    (name, index) => index >= UNSUPPORTED_INPUTS.from && name !== '',
  )
  if (extra >= 0) {
    const name = UNSUPPORTED_INPUTS.names[extra - UNSUPPORTED_INPUTS.from] ?? `input ${extra}`
    throw untrainable(node, `it reads ${name}`)
  }
  if (intOf(node, 'smooth_softmax', 0) === 1) throw untrainable(node, 'it smooths its softmax')
  const scale = floatOf(node, 'scale', 0)
  return {
    numHeads: intOf(node, 'num_heads', 1),
    numCacheHeads: intOf(node, 'kv_num_heads', 1),
    headDim,
    scale: scale === 0 ? 1 / Math.sqrt(headDim) : scale,
    softcap: floatOf(node, 'softcap', 0),
    window: intOf(node, 'local_window_size', NO_WINDOW),
    rotates: intOf(node, 'do_rotary', 0) === 1,
    isInterleaved: intOf(node, 'rotary_interleaved', 0) === 1,
  }
}

/**
 * softmax(scale · Q · Kᵀ + mask) · V for [batch, length, heads · size]. The heads of a group share
 * keys, so their queries are the rows of one product: [batch, cache heads, group · length, size].
 */
function writeAttention(
  node: GraphNode,
  writer: GraphWriter,
  settings: Settings & { readonly mask: string },
): void {
  const { numHeads, numCacheHeads, headDim, scale, softcap, mask } = settings
  const { query, key, value } = readParts(node, writer, settings)
  const split = (tensor: string, heads: number): string => {
    const shaped = writer.emit('Reshape', [tensor, writer.ints(0, 0, heads, headDim)])
    return writer.emit('Transpose', [shaped], { attributes: { perm: ints(0, 2, 1, 3) } })
  }
  const queries = writer.emit('Reshape', [
    split(query, numHeads),
    writer.ints(0, numCacheHeads, -1, headDim),
  ])
  const keys = writer.emit(
    'Transpose',
    [writer.emit('Reshape', [key, writer.ints(0, 0, numCacheHeads, headDim)])],
    { attributes: { perm: ints(0, 2, 3, 1) } },
  )
  const scaled = writer.emit('Mul', [queries, writer.scalar(scale)])
  const scores = cap(writer, writer.emit('MatMul', [scaled, keys]), softcap)
  const shares = writer.emit('Softmax', [writer.emit('Add', [scores, mask])], {
    attributes: { axis: int(-1) },
  })
  const mixed = writer.emit('MatMul', [shares, split(value, numCacheHeads)])
  const heads = writer.emit('Reshape', [mixed, writer.ints(0, numHeads, -1, headDim)])
  const joined = writer.emit('Transpose', [heads], { attributes: { perm: ints(0, 2, 1, 3) } })
  writer.emitTo(node.outputs[0] as string, 'Reshape', [joined, writer.ints(0, 0, -1)])
}

/** Query, key and value, apart and rotated. */
function readParts(
  { inputs }: GraphNode,
  writer: GraphWriter,
  { numHeads, numCacheHeads, headDim, rotates, isInterleaved }: Settings,
): { readonly query: string; readonly key: string; readonly value: string } {
  const [first = '', second = '', third = ''] = inputs
  const [cos = '', sin = ''] = [inputs[7], inputs[8]]
  const sizes = [numHeads, numCacheHeads, numCacheHeads].map((heads) => heads * headDim)
  const [query = '', key = '', value = ''] =
    second === ''
      ? writer.emitMany('Split', [first, writer.ints(...sizes)], {
          count: 3,
          attributes: { axis: int(-1) },
        })
      : [first, second, third]
  if (!rotates) return { query, key, value }
  const rotate = (tensor: string, heads: number): string =>
    writer.emit('RotaryEmbedding', [tensor, POSITION_IDS, cos, sin], {
      domain: 'com.microsoft',
      attributes: {
        interleaved: int(isInterleaved ? 1 : 0),
        num_heads: int(heads),
      },
    })
  return { query: rotate(query, numHeads), key: rotate(key, numCacheHeads), value }
}

/** softcap · tanh(scores / softcap), where there is one. */
function cap(writer: GraphWriter, scores: string, softcap: number): string {
  if (softcap === 0) return scores
  const narrow = writer.emit('Tanh', [writer.emit('Div', [scores, writer.scalar(softcap)])])
  return writer.emit('Mul', [narrow, writer.scalar(softcap)])
}

/**
 * Zero where a token sees another one: of its own text, not after it and within the window. The
 * rows repeat for every head of a group.
 */
function writeMask(
  writer: GraphWriter,
  { window, groups }: { readonly window: number; readonly groups: number },
): string {
  const unsqueeze = (tensor: string, axis: number): string =>
    writer.emit('Unsqueeze', [tensor, writer.ints(axis)])
  const isSameText = writer.emit('Equal', [unsqueeze(SEGMENT_IDS, 2), unsqueeze(SEGMENT_IDS, 1)])
  const ones = writer.emit('ConstantOfShape', [writer.shape(SEGMENT_IDS)], {
    attributes: { value: { kind: 'tensor', value: int64Constant('one', [1]) } },
  })
  const counted = writer.emit('CumSum', [ones, writer.ints(1)])
  const distance = writer.emit('Sub', [unsqueeze(counted, 2), unsqueeze(counted, 1)])
  const isAfter = writer.emit('Less', [distance, writer.ints(0)])
  const isBefore = writer.emit('Not', [isAfter])
  const isNear =
    window < 0
      ? isBefore
      : writer.emit('And', [isBefore, writer.emit('Less', [distance, writer.ints(window)])])
  const isSeen = writer.emit('And', [isSameText, isNear])
  const scores = writer.emit('Where', [isSeen, writer.scalar(0), writer.scalar(MASKED_SCORE)])
  const mask = unsqueeze(scores, 1)
  if (groups === 1) return mask
  return writer.emit(
    'Concat',
    Array.from({ length: groups }, () => mask),
    {
      attributes: { axis: int(2) },
    },
  )
}
