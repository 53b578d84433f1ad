import { basename, dirname } from 'node:path'

import { ModelLoadError } from '#workers/runtime/errors.ts'

import { WEIGHT_SUFFIXES, wholeGraph } from './choose-files.ts'
import { graphInside } from './inside-folder.ts'
import { findNamedGraph, listGraphs, namesOfOthers } from './named-graph.ts'

const namesOf = (stem: string) => WEIGHT_SUFFIXES.precise.map((suffix) => `${stem}${suffix}.onnx`)
const MODEL_NAMES = namesOf('model')
/** Names of two towers, beside which `model` is a graph with both. */
const TOWER_NAMES = namesOf('text_model')

/** The requested graph, the best of the usual ones, or the only one apart from its variants. */
export async function findModelFile(folder: string, onnxFile: string | undefined): Promise<string> {
  const present = await listGraphs(folder)
  const found =
    onnxFile === undefined ? chooseGraph(present) : await findNamedGraph(folder, onnxFile)
  if (found !== undefined) return graphInside(folder, found)
  const wanted = onnxFile ?? 'model.onnx'
  throw new ModelLoadError(
    folder,
    `there is no ${wanted} in onnx/ or beside config.json, ${namesOfOthers(present)}`,
  )
}

function chooseGraph(present: readonly string[]): string | undefined {
  for (const place of ['onnx', '.']) {
    const graphs = present.filter((path) => dirname(path) === place)
    const hasTowers = ['text_model', 'vision_model'].every((stem) =>
      graphs.some((path) => basename(path).startsWith(stem)),
    )
    const usual = hasTowers ? TOWER_NAMES : MODEL_NAMES
    const found = usual
      .map((name) => graphs.find((path) => basename(path) === name))
      .find((path) => path !== undefined)
    if (found !== undefined) return found
    const whole = wholeGraph(graphs.map((path) => basename(path, '.onnx')))
    if (whole !== undefined) return graphs.find((path) => basename(path) === `${whole}.onnx`)
  }
  return undefined
}
