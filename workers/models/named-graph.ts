import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'

import { isPlainPath } from './manifest.ts'

/**
 * The graph named by `onnxFile`, as a path in a model's folder: a name in `onnx/` or in the folder
 * itself, or a path from the root of a source, of which the model's folder may be a part. Undefined
 * if there is none.
 */
export async function findNamedGraph(
  folder: string,
  onnxFile: string,
): Promise<string | undefined> {
  if (!isPlainPath(onnxFile)) return undefined
  const parts = onnxFile.split('/')
  const paths = parts.map((_part, at) => parts.slice(at).join('/'))
  for (const path of paths.flatMap((name) => [name, `${name}.onnx`])) {
    for (const name of [`onnx/${path}`, path]) {
      const found = await stat(join(folder, name)).catch(() => undefined)
      if (found?.isDirectory() === false) return name
    }
  }
  return undefined
}

/** The graphs below `onnx/` and in the folder itself, as paths in it. */
export async function listGraphs(folder: string): Promise<readonly string[]> {
  const list = async (place: string) =>
    (await readdir(join(folder, place)).catch(() => []))
      .filter((name) => name.endsWith('.onnx'))
      .map((name) => `${place}${name}`)
  return [...(await list('onnx/')), ...(await list(''))]
}

/** The graphs that a folder has in place of a missing one, for messages. */
export function namesOfOthers(graphs: readonly string[]): string {
  return graphs.length === 0
    ? 'no graph at all (`models convert` makes one of safetensors; GGUF is not supported)'
    : `only ${graphs.toSorted().join(', ')}`
}
