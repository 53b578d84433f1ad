import { readdir, realpath, stat } from 'node:fs/promises'
import { dirname, join, sep } from 'node:path'

import { ModelLoadError } from '#workers/runtime/errors.ts'

// Other tools store the files of a hub repository once, with links from `snapshots/<commit>`.
const SNAPSHOT = /^(.+)[/\\]snapshots[/\\][^/\\]+(?=[/\\]|$)/

/**
 * The path of a file in a model's folder. Throws `ModelLoadError` when the file is outside: a
 * link or a path in a configuration must not show other files of the machine. Rejects with `ENOENT`
 * when there is none.
 */
export async function pathInside(folder: string, name: string): Promise<string> {
  const path = join(folder, name)
  const [root, target] = await Promise.all([realpath(folder), realpath(path)])
  const repository = SNAPSHOT.exec(root)?.[1]
  const roots = repository === undefined ? [root] : [root, join(repository, 'blobs')]
  if (roots.some((allowed) => target === allowed || target.startsWith(allowed + sep))) return path
  throw new ModelLoadError(folder, `${name} is outside the model's folder`)
}

/**
 * The path of a graph in a model's folder. All entries beside it must be regular files or folders.
 */
export async function graphInside(folder: string, name: string): Promise<string> {
  const path = await pathInside(folder, name).catch((error: Error) => {
    if (error instanceof ModelLoadError) throw error
    throw new ModelLoadError(folder, `${name} cannot be read: ${error.message}`)
  })
  // The runtime opens external data itself, and would wait for the writer of a pipe.
  for (const entry of await readdir(dirname(path))) {
    const found = await stat(join(dirname(path), entry)).catch(() => undefined)
    if (found === undefined || found.isFile() || found.isDirectory()) continue
    throw new ModelLoadError(folder, `${entry} beside ${name} is not a regular file`)
  }
  return path
}
