import { existsSync } from 'node:fs'
import { join } from 'node:path'

import { type Arguments, UsageError } from '#launcher/command-line.ts'
import { type Env, loadWorkerConfig } from '#shared/config/config.ts'
import { loadCatalogue } from '#shared/load-catalogue.ts'

/** Whether this installation has a tier; the image of the other tier does not. */
export function hasTier(tier: 'api' | 'workers'): boolean {
  return existsSync(join(import.meta.dirname, '../..', tier))
}

/** `millrace models list`, `verify`, `pull`, `convert` or `export`. */
export async function models(env: Env, args: Arguments): Promise<void> {
  const [name = ''] = args.positionals
  if (!['list', 'verify', 'pull', 'convert', 'export'].includes(name)) {
    throw new UsageError('models: list, verify, pull, convert or export')
  }
  const config = loadWorkerConfig(env)
  const catalogue = await loadCatalogue(config.inference.catalogueFile)
  if (name === 'list') {
    for (const { id, kind, source, adapter } of catalogue.models) {
      const place = adapter === undefined ? source : `${adapter.source} on ${adapter.baseId}`
      console.log(`${id.padEnd(20)} ${kind.padEnd(12)} ${place}`)
    }
    return
  }
  if (!hasTier('workers')) {
    throw new Error(`models ${name} needs the worker tier: run it in the image of a worker`)
  }
  const { runFileAction } = await import('./model-files.ts')
  await runFileAction(name, { catalogue, config, args, env })
}
