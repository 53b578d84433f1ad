import { readdir } from 'node:fs/promises'
import { join } from 'node:path'

import { ModelLoadError } from '#workers/runtime/errors.ts'

import { WEIGHT_SUFFIXES } from './choose-files.ts'
import { graphInside } from './inside-folder.ts'

const MODEL_NAMES = WEIGHT_SUFFIXES.precise.map((suffix) => `model${suffix}.onnx`)

/** The graph that was asked for, the best of the usual ones, or the only one that is there. */
export async function findModelFile(folder: string, onnxFile: string | undefined): Promise<string> {
  const wanted = onnxFile === undefined ? MODEL_NAMES : [onnxFile, `${onnxFile}.onnx`]
  for (const place of ['onnx', '.']) {
    const present = (await readdir(join(folder, place)).catch(() => [])).filter((name) =>
      name.endsWith('.onnx'),
    )
    const found = wanted.find((name) => present.includes(name))
    if (found !== undefined) return graphInside(folder, join(place, found))
    if (onnxFile === undefined && present.length === 1) {
      return graphInside(folder, join(place, present[0] as string))
    }
  }
  const names = onnxFile === undefined ? 'model.onnx' : wanted[0]
  throw new ModelLoadError(folder, `there is no ${names} in onnx/ or beside config.json`)
}
