import type { LinearModule } from '#workers/adapters/target-modules.ts'
import { withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import {
  type Graph,
  type GraphValue,
  int,
  type Model,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'

import { differentiate } from './autodiff/differentiate.ts'
import { GraphWriter } from './graph-writer.ts'
import { insertLowRank, type LowRankInput } from './low-rank.ts'
import { lowerGraph } from './lowering/lower-graph.ts'
import { inSinglePrecision } from './lowering/single-precision.ts'
import { recomputeActivations } from './recompute.ts'

/** Inputs of a training graph beside those of the decoder and the matrices. */
export const TARGETS = {
  /** Indices of the tokens that have a target, in the rows of a batch one behind the other. */
  rows: 'target_rows',
  /** The token that follows each of them. */
  ids: 'target_ids',
  /** The share of each in the loss. */
  weights: 'target_weights',
} as const

/** Outputs of a training graph beside the gradients: a weighted sum and a count. */
export const LOSS = 'loss'
export const CORRECT = 'num_correct'

/** Graphs that compute the loss of a decoder with low-rank branches. */
export interface TrainingGraph {
  /** With the gradients of all matrices as outputs. */
  readonly training: Model
  /** Without gradients. */
  readonly evaluation: Model
  readonly matrices: readonly TrainedMatrices[]
  /** Several texts may share a row. */
  readonly hasSegments: boolean
}

/** Names of the two matrices of a linear layer and of their gradients. */
export interface TrainedMatrices extends LowRankInput {
  readonly gradientOfA: string
  readonly gradientOfB: string
}

/** Operators whose meaning has not changed between these versions in the graphs of decoders. */
const OPSET_MIN = 13
const OPSET_RAISED = 17

/**
 * Makes the graphs of a training from that of a decoder. Throws an `invalidRequest` that names an
 * operator without a gradient.
 */
export function makeTrainingGraph(
  model: Model,
  modules: readonly LinearModule[],
  { rank, alpha }: { readonly rank: number; readonly alpha: number },
): TrainingGraph {
  const opset = readOpset(model)
  const wide = inSinglePrecision(model.graph)
  const { graph: branched, matrices } = insertLowRank(wide, modules, {
    rank,
    scale: alpha / rank,
    writer: new GraphWriter('low_rank', opset),
  })
  const { graph: lowered, hasSegments } = lowerGraph(
    { ...branched, outputs: branched.outputs.filter(({ name }) => name === 'logits') },
    new GraphWriter('forward', opset),
  )
  const forward = appendLoss(lowered, new GraphWriter('loss', opset))
  const writer = new GraphWriter('backward', opset)
  const gradients = differentiate(
    forward.graph,
    { seeds: new Map([forward.seed]), trained: matrices.flatMap(({ a, b }) => [a, b]) },
    writer,
  )
  const trained = matrices.flatMap((pair) => {
    const [gradientOfA, gradientOfB] = [gradients.of(pair.a), gradients.of(pair.b)]
    return gradientOfA === undefined || gradientOfB === undefined
      ? []
      : [{ ...pair, gradientOfA, gradientOfB }]
  })
  const outputs = trained.flatMap(({ module, gradientOfA, gradientOfB }) => [
    makeValue(gradientOfA, 'float32', [rank, module.inSize]),
    makeValue(gradientOfB, 'float32', [module.outSize, rank]),
  ])
  const passes = { forward: forward.graph, active: gradients.active, gradientOf: gradients.of }
  const nodes = recomputeActivations({ ...passes, backward: writer.nodes.splice(0) }, writer)
  const backward = {
    ...forward.graph,
    nodes: [...forward.graph.nodes, ...nodes],
    constants: [...forward.graph.constants, ...writer.constants],
    outputs: [...forward.graph.outputs, ...outputs],
  }
  return {
    training: asModel(model, backward, opset),
    evaluation: asModel(model, forward.graph, opset),
    matrices: trained,
    hasSegments,
  }
}

function readOpset({ opsets }: Model): number {
  const version = opsets.find(({ domain }) => domain === '' || domain === 'ai.onnx')?.version ?? 0
  if (version < OPSET_MIN) {
    throw new RangeError(`the operators of set ${version} are older than ${OPSET_MIN}`)
  }
  return Math.max(version, OPSET_RAISED)
}

function asModel(model: Model, graph: Graph, opset: number): Model {
  const others = model.opsets.filter(({ domain }) => {
    return domain !== '' && domain !== 'ai.onnx' && domain !== 'com.microsoft'
  })
  const opsets = [
    { domain: '', version: opset },
    { domain: 'com.microsoft', version: 1 },
    ...others,
  ]
  return { ...model, opsets, graph: withoutUnused(new GraphView(graph)) }
}

/**
 * Adds the cross-entropy of the targets: Σ weight · −log softmax(logits)[id]. Its gradient by the
 * logits is weight · (softmax(logits) − one at id). Only tokens with a target reach the last
 * product, the widest of all.
 */
function appendLoss(
  graph: Graph,
  writer: GraphWriter,
): { readonly graph: Graph; readonly seed: readonly [string, string] } {
  const { nodes, logits } = pickTargets(graph, writer)
  const unsqueeze = (tensor: string): string => writer.emit('Unsqueeze', [tensor, writer.ints(1)])
  const last = { attributes: { axis: int(-1) } }
  const logShares = writer.emit('LogSoftmax', [logits], last)
  const ids = unsqueeze(TARGETS.ids)
  const weights = unsqueeze(TARGETS.weights)
  const chosen = writer.emit('GatherElements', [logShares, ids], last)
  const losses = writer.emit('Neg', [writer.emit('Mul', [chosen, weights])])
  const whole = { attributes: { keepdims: int(0) } }
  writer.emitTo(LOSS, 'ReduceSum', [losses], whole)
  const likeliest = writer.emit('ArgMax', [logits], {
    attributes: { axis: int(-1), keepdims: int(0) },
  })
  const isCorrect = writer.emit('Equal', [likeliest, TARGETS.ids])
  const counted = writer.emit('Cast', [isCorrect], { attributes: { to: int(1) } })
  writer.emitTo(CORRECT, 'ReduceSum', [counted], whole)
  const forward = [...nodes, ...writer.nodes]
  writer.nodes.length = 0
  const shares = writer.emit('Mul', [writer.emit('Exp', [logShares]), weights])
  const seed = writer.emit('ScatterElements', [shares, ids, writer.emit('Neg', [weights])], {
    attributes: { axis: int(1), reduction: { kind: 'string', value: 'add' } },
  })
  return {
    graph: {
      ...graph,
      nodes: [...forward, ...writer.nodes],
      constants: [...graph.constants, ...writer.constants],
      inputs: [...graph.inputs, ...TARGET_INPUTS],
      outputs: [makeValue(LOSS, 'float32', []), makeValue(CORRECT, 'float32', [])],
    },
    seed: [logits, seed],
  }
}

const TARGET_INPUTS: readonly GraphValue[] = [
  makeValue(TARGETS.rows, 'int64', ['targets']),
  makeValue(TARGETS.ids, 'int64', ['targets']),
  makeValue(TARGETS.weights, 'float32', ['targets']),
]

/** The logits of the tokens that have a target, and the nodes of the graph that compute them. */
function pickTargets(graph: Graph, writer: GraphWriter) {
  const view = new GraphView(graph)
  const rowsOf = (tensor: string): string => {
    const rows = writer.emit('Flatten', [tensor], { attributes: { axis: int(2) } })
    return writer.emit('Gather', [rows, TARGETS.rows])
  }
  const head = view.producer(view.source('logits'))
  const [features = '', weights = ''] = head?.inputs ?? []
  if (head?.operator !== 'MatMul') return { nodes: graph.nodes, logits: rowsOf('logits') }
  const picked = rowsOf(features)
  const logits = 'logits/targets'
  writer.nodes.push(makeNode('MatMul', [picked, weights], logits))
  return { nodes: graph.nodes.filter((node) => node !== head), logits }
}
