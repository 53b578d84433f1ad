import { cp, readdir, realpath, stat } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'

import { chooseFiles, type WantedSource } from './choose-files.ts'
import { pathInside } from './inside-folder.ts'

/** Graphs and weights, which are not copied. */
const OF_WEIGHTS =
  /\.onnx$|\.onnx[_.]data|\.data$|(^|\/)weights\.pb$|\.safetensors(\.index\.json)?$/

/**
 * Copies the configuration and tokenizer beside a model's graphs. Other folders contain other
 * variants of the model, and a manifest would state other checksums.
 */
export async function copyConfiguration(
  folder: string,
  target: string,
  model: Pick<WantedSource, 'options' | 'kind' | 'layout'>,
): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files: { path: string; bytes: number }[] = []
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name)
    const found = await stat(path).catch(() => undefined)
    if (found?.isFile()) files.push({ path: relative(folder, path), bytes: found.size })
  }
  for (const { path } of chooseFiles(files, model)) {
    if (OF_WEIGHTS.test(path) || dirname(path) !== '.') continue
    await cp(await realpath(await pathInside(folder, path)), join(target, path))
  }
}
