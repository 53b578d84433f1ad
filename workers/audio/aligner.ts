import { withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import {
  type Constant,
  type GraphNode,
  int,
  int64Constant,
  ints,
  makeConstant,
  makeModel,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { openAll } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import type { ElementType } from '#workers/tensor/element-type.ts'

import type { AlignmentHead } from './alignment-heads.ts'
import { findRowStarts } from './time-warping.ts'

/** Cross-attentions by layer, each `[1, heads, tokens, positions]`. */
type Attentions = ReadonlyMap<number, Tensor>

/** Finds the position in the sound that a decoder attends to when it reads each token. */
export interface Aligner {
  /** The layers whose attentions it reads. */
  readonly layers: readonly number[]
  /**
   * The positions of the tokens from `from` to before `to`, in ascending order, where `positions`
   * is the number of positions with sound.
   */
  align(
    attentions: Attentions,
    range: { readonly from: number; readonly to: number; readonly positions: number },
  ): Promise<Int32Array>
  close(): Promise<void>
}

/** The chosen heads and the precision of their weights. */
interface AlignerOptions {
  readonly heads: readonly AlignmentHead[]
  /** Odd. */
  readonly medianWidth: number
  readonly type: ElementType
}

// Keeps weights finite that have no sum or variance.
const DIVISOR_MIN = 1e-12

/**
 * Aligns tokens like Whisper's code (openai/whisper, timing.py). The weights of the alignment heads
 * are cut to the sound and scaled to a sum of 1, normalized for each position over all tokens,
 * smoothed by a median filter over positions and averaged over heads; dynamic time warping then
 * finds the path through them. Everything except the path is a graph, off the event loop.
 */
export async function openAligner(runtime: Runtime, options: AlignerOptions): Promise<Aligner> {
  const open = (medianWidth: number) =>
    runtime.load(
      { name: 'the alignment graph', bytes: makeAlignmentGraph({ ...options, medianWidth }) },
      { intraOpThreads: 1 },
    )
  const widths = options.medianWidth === 1 ? [1] : [options.medianWidth, 1]
  const sessions = await openAll(widths.map(open))
  const [filtered, plain = filtered] = sessions as [ModelSession, ModelSession?]
  return {
    layers: layersOf(options.heads),
    async align(attentions, { from, to, positions }) {
      const count = runtime.tensor('int64', BigInt64Array.of(BigInt(positions)), [1])
      // The filter mirrors half of its width, which requires more positions than that.
      const session = positions > options.medianWidth / 2 ? filtered : plain
      try {
        const { scores } = await session.run(
          { count, ...Object.fromEntries([...attentions].map(([n, t]) => [inputName(n), t])) },
          { scores: null },
        )
        try {
          const data = scores.data as Float32Array
          return findRowStarts(data.subarray(from * positions, to * positions), {
            rows: to - from,
            columns: positions,
          })
        } finally {
          scores.dispose()
        }
      } finally {
        count.dispose()
      }
    },
    async close() {
      await Promise.all(sessions.map((session) => session.close()))
    },
  }
}

const inputName = (layer: number): string => `attentions.${layer}`

function layersOf(heads: readonly AlignmentHead[]): readonly number[] {
  return [...new Set(heads.map(({ layer }) => layer))].sort((a, b) => a - b)
}

/** `attentions.N [1, heads, tokens, positions]` and `count [1]` → `scores [tokens, count]`. */
function makeAlignmentGraph({ heads, medianWidth, type }: AlignerOptions): Uint8Array {
  const layers = layersOf(heads)
  const constants: Constant[] = [
    int64Constant('zero', [0]),
    int64Constant('lastAxis', [3]),
    makeConstant('least', 'float32', [], Float32Array.of(DIVISOR_MIN)),
  ]
  const chosen = layers.flatMap((layer) => {
    const indices = heads.flatMap((one) => (one.layer === layer ? [one.head] : []))
    constants.push(int64Constant(`heads.${layer}`, indices))
    const gather = { attributes: { axis: int(1) } }
    return [
      makeNode('Gather', [inputName(layer), `heads.${layer}`], `gathered.${layer}`, gather),
      makeNode('Cast', [`gathered.${layer}`], `chosen.${layer}`, { attributes: { to: int(1) } }),
    ]
  })
  const chosenNames = layers.map((layer) => `chosen.${layer}`)
  const filter = medianFilter(medianWidth)
  const model = makeModel({
    name: 'alignment',
    nodes: [
      ...chosen,
      makeNode('Concat', chosenNames, 'weights', { attributes: { axis: int(1) } }),
      makeNode('Slice', ['weights', 'zero', 'count', 'lastAxis'], 'audible'),
      makeNode('ReduceSum', ['audible', 'lastAxis'], 'sums'),
      ...quotient('audible', 'sums', 'shares'),
      makeNode('ReduceMean', ['shares'], 'mean', { attributes: { axes: ints(2) } }),
      makeNode('Sub', ['shares', 'mean'], 'centred'),
      makeNode('Mul', ['centred', 'centred'], 'squares'),
      makeNode('ReduceMean', ['squares'], 'variance', { attributes: { axes: ints(2) } }),
      makeNode('Sqrt', ['variance'], 'deviation'),
      ...quotient('centred', 'deviation', 'normalized'),
      ...filter.nodes,
      makeNode('ReduceMean', [filter.output], 'scores', {
        attributes: { axes: ints(0, 1), keepdims: int(0) },
      }),
    ],
    constants: [...constants, ...filter.constants],
    inputs: [
      makeValue('count', 'int64', [1]),
      ...layers.map((layer) => makeValue(inputName(layer), type, ['', '', '', ''])),
    ],
    outputs: [makeValue('scores', 'float32', ['', ''])],
  })
  return writeModel({ ...model, graph: withoutUnused(new GraphView(model.graph)) })
}

function quotient(dividend: string, divisor: string, output: string): GraphNode[] {
  return [
    makeNode('Max', [divisor, 'least'], `${divisor}.positive`),
    makeNode('Div', [dividend, `${divisor}.positive`], output),
  ]
}

/**
 * The median of `width` neighbours along the last axis, mirrored at its ends: shifted copies pass
 * through a sorting network (odd-even transposition) of elementwise minimums and maximums.
 */
function medianFilter(width: number): {
  readonly nodes: readonly GraphNode[]
  readonly constants: readonly Constant[]
  readonly output: string
} {
  if (width === 1) return { nodes: [], constants: [], output: 'normalized' }
  const half = (width - 1) / 2
  const constants = [int64Constant('margins', [0, 0, 0, half, 0, 0, 0, half])]
  const nodes = [
    makeNode('Pad', ['normalized', 'margins'], 'mirrored', {
      attributes: { mode: { kind: 'string', value: 'reflect' } },
    }),
  ]
  let wires = Array.from({ length: width }, (_, shift) => {
    constants.push(int64Constant(`from.${shift}`, [shift]))
    // The end is counted from the back; a number larger than any length keeps all.
    const end = shift === width - 1 ? Number.MAX_SAFE_INTEGER : shift - width + 1
    constants.push(int64Constant(`to.${shift}`, [end]))
    nodes.push(
      makeNode('Slice', ['mirrored', `from.${shift}`, `to.${shift}`, 'lastAxis'], `wire.${shift}`),
    )
    return `wire.${shift}`
  })
  for (let round = 0; round < width; round++) {
    const next = [...wires]
    for (let at = round % 2; at + 1 < width; at += 2) {
      const pair = [wires[at] as string, wires[at + 1] as string]
      const [low, high] = [`low.${round}.${at}`, `high.${round}.${at}`]
      nodes.push(makeNode('Min', pair, low), makeNode('Max', pair, high))
      next.splice(at, 2, low, high)
    }
    wires = next
  }
  return { nodes, constants, output: wires[half] as string }
}
