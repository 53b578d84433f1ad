import { realpath } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

import type { Constant, Model } from './model.ts'

/**
 * The model with weights located in the real files. Hugging Face's tools store the files of a
 * snapshot as links to `blobs/`, so a graph read there needs the names of its weights in that
 * folder. Undefined when any of them is in another folder than the graph.
 */
export async function resolveWeights(
  model: Model,
  { file, realFile }: { readonly file: string; readonly realFile: string },
): Promise<Model | undefined> {
  if (file === realFile) return model
  const names = new Map<string, string>([[basename(realFile), basename(realFile)]])
  for (const { data } of model.graph.constants) {
    if (data.kind !== 'file' || names.has(data.location)) continue
    const { location } = data
    if (location !== basename(location)) return undefined
    const target = await realpath(join(dirname(file), location)).catch(() => undefined)
    if (target === undefined || dirname(target) !== dirname(realFile)) return undefined
    names.set(location, basename(target))
  }
  const resolve = (constant: Constant): Constant => {
    const { data } = constant
    if (data.kind !== 'file') return constant
    const location = names.get(data.location) ?? data.location
    return { ...constant, data: { ...data, location } }
  }
  const { graph } = model
  return { ...model, graph: { ...graph, constants: graph.constants.map(resolve) } }
}
