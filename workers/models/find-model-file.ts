import { readdir } from 'node:fs/promises'
import { join } from 'node:path'

import { ModelLoadError } from '#workers/runtime/errors.ts'

import { WEIGHT_SUFFIXES } from './choose-files.ts'
import { graphInside } from './inside-folder.ts'

const namesOf = (stem: string) => WEIGHT_SUFFIXES.precise.map((suffix) => `${stem}${suffix}.onnx`)
const MODEL_NAMES = namesOf('model')
/** Of two towers, beside which `model` is both in one graph. */
const TOWER_NAMES = namesOf('text_model')

/** The graph that was asked for, the best of the usual ones, or the only one that is there. */
export async function findModelFile(folder: string, onnxFile: string | undefined): Promise<string> {
  for (const place of ['onnx', '.']) {
    const present = (await readdir(join(folder, place)).catch(() => [])).filter((name) =>
      name.endsWith('.onnx'),
    )
    const hasTowers = ['text_model', 'vision_model'].every((stem) =>
      present.some((name) => name.startsWith(stem)),
    )
    const usual = hasTowers ? TOWER_NAMES : MODEL_NAMES
    const wanted = onnxFile === undefined ? usual : [onnxFile, `${onnxFile}.onnx`]
    const found = wanted.find((name) => present.includes(name))
    if (found !== undefined) return graphInside(folder, join(place, found))
    if (onnxFile === undefined && present.length === 1) {
      return graphInside(folder, join(place, present[0] as string))
    }
  }
  throw new ModelLoadError(
    folder,
    `there is no ${onnxFile ?? 'model.onnx'} in onnx/ or beside config.json`,
  )
}
