import { realpath } from 'node:fs/promises'
import { dirname } from 'node:path'

import { withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import type { Graph } from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { resolveWeights } from '#workers/graph/resolve-weights.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import type { ModelBytes } from '#workers/runtime/runtime.ts'

/** Whether a graph has a tower for texts and one for images, as in optimum's exports of CLIP. */
export async function hasBothTowers(file: string): Promise<boolean> {
  const { graph } = await readModelFile(file)
  return readsBoth(graph)
}

/** Whether a graph reads images and no texts, as in exports of DINOv2 and ViT. */
export async function readsImagesAlone(file: string): Promise<boolean> {
  const { graph } = await readModelFile(file)
  const names = graph.inputs.map(({ name }) => name)
  return names.includes('pixel_values') && !names.includes('input_ids')
}

function readsBoth({ inputs }: Graph): boolean {
  return ['input_ids', 'pixel_values'].every((wanted) => inputs.some(({ name }) => name === wanted))
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
  if (!readsBoth(read.graph) || name === undefined) return file
  const model = await resolveWeights(read, { file, realFile })
  if (model === undefined) return file
  const wanted = model.graph.outputs.filter((value) => value.name === name)
  const graph = withoutUnused(new GraphView({ ...model.graph, outputs: wanted }))
  return { name: file, bytes: writeModel({ ...model, graph }), folder: dirname(realFile) }
}
