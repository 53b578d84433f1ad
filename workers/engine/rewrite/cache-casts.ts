import { isCacheInput, presentOf } from '#workers/engine/past-inputs.ts'
import { renameTensors } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import type { GraphNode, GraphValue, Model } from '#workers/graph/model.ts'

/** Element types by their numbers in onnx.proto. */
const FLOAT16 = 10
const FLOAT32 = 1

/** The casts around one cache, and the tensors in half precision between them. */
interface CastCache {
  readonly past: string
  readonly present: string
  /** The past after its cast. */
  readonly narrowPast: string
  /** The present before its cast. */
  readonly narrowPresent: string
}

/**
 * A decoder whose caches are inputs and outputs in single precision although it computes them in
 * half precision, as ONNX Runtime's float16 converter leaves them with `keep_io_types`, with its
 * caches in half precision. The results are the same, because each value was cast up and down
 * again. Undefined for other graphs.
 */
export function narrowCaches(model: Model): Model | undefined {
  const { graph } = model
  const view = new GraphView(graph)
  const pasts = graph.inputs.flatMap(({ name }) => (isCacheInput(name) ? [name] : []))
  const caches = pasts.map((past) => findCasts(view, past))
  if (caches.length === 0 || caches.includes(undefined)) return undefined
  const found = caches.filter((cache) => cache !== undefined)
  const renamed = new Map(
    found.flatMap(({ past, present, narrowPast, narrowPresent }) => [
      [narrowPast, past] as const,
      [narrowPresent, present] as const,
    ]),
  )
  const removed = new Set(found.flatMap(({ narrowPast, present }) => [narrowPast, present]))
  const nodes = graph.nodes.filter(({ outputs }) => !outputs.some((name) => removed.has(name)))
  const narrowed = renameTensors({ ...graph, nodes }, renamed)
  if (narrowed === undefined) return undefined
  const names = new Set(found.flatMap(({ past, present }) => [past, present]))
  const narrow = (value: GraphValue): GraphValue =>
    names.has(value.name) ? { ...value, onnxType: FLOAT16 } : value
  const [inputs, outputs] = [graph.inputs.map(narrow), graph.outputs.map(narrow)]
  return { ...model, graph: { ...narrowed, inputs, outputs } }
}

function findCasts(view: GraphView, past: string): CastCache | undefined {
  const present = presentOf(past)
  const [down, ...others] = view.consumers(past)
  const up = view.producer(present)
  if (others.length > 0 || !isCast(down, FLOAT16) || !isCast(up, FLOAT32)) return undefined
  const narrowPast = down.outputs[0] as string
  const narrowPresent = up.inputs[0] as string
  // If one operator computes the present from the past, both have the same type.
  const isSameType = view.producer(narrowPresent)?.inputs.includes(narrowPast) === true
  const isRead = view.consumers(present).length > 0
  return isSameType && !isRead ? { past, present, narrowPast, narrowPresent } : undefined
}

function isCast(node: GraphNode | undefined, to: number): node is GraphNode {
  const type = node?.attributes.to
  return node?.operator === 'Cast' && type?.kind === 'int' && Number(type.value) === to
}
