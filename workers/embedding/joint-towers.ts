import { realpath } from 'node:fs/promises'
import { dirname } from 'node:path'

import { withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import type { Graph } from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { resolveWeights } from '#workers/graph/resolve-weights.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import type { ModelBytes } from '#workers/runtime/runtime.ts'

interface GraphReads {
  readonly texts: boolean
  readonly images: boolean
}

/** Whether a graph reads texts or images; both, as optimum exports CLIP, need both towers. */
export async function readsOf(file: string): Promise<GraphReads> {
  const { graph } = await readModelFile(file)
  return readsOfGraph(graph)
}

function readsOfGraph({ inputs }: Graph): GraphReads {
  const has = (wanted: string): boolean => inputs.some(({ name }) => name === wanted)
  return { texts: has('input_ids'), images: has('pixel_values') }
}

/**
 * The part of a graph with both towers that computes the first of some outputs; the unchanged file
 * if it has one tower, or none of the outputs. Throws `ModelLoadError`.
 */
export async function towerOf(
  file: string,
  outputs: readonly string[],
): Promise<string | ModelBytes> {
  const realFile = await realpath(file)
  const read = await readModelFile(realFile)
  const [name] = outputs.filter((wanted) =>
    read.graph.outputs.some((value) => value.name === wanted),
  )
  const reads = readsOfGraph(read.graph)
  if (!reads.texts || !reads.images || name === undefined) return file
  const model = await resolveWeights(read, { file, realFile })
  if (model === undefined) return file
  const wanted = model.graph.outputs.filter((value) => value.name === name)
  const graph = withoutUnused(new GraphView({ ...model.graph, outputs: wanted }))
  return { name: file, bytes: writeModel({ ...model, graph }), folder: dirname(realFile) }
}
