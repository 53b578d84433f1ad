import { cp, mkdir, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'

import { eq } from 'drizzle-orm'

import { UsageError } from '#launcher/command-line.ts'
import { openReachableDatabase } from '#launcher/reach.ts'
import { withRunningInstallation } from '#launcher/running.ts'
import type { Catalogue, CatalogueModel } from '#shared/catalogue.ts'
import { type Env, loadConfig } from '#shared/config/config.ts'
import { tuningTables } from '#shared/db/schema/fine-tuning.ts'
import { mergeAdapter } from '#workers/adapters/merge-adapter.ts'
import { ADAPTER_FILES, readPeftAdapter } from '#workers/adapters/peft-files.ts'
import { ensureModel } from '#workers/models/fetcher.ts'
import type { StoredOptions } from '#workers/models/stored-cache.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

/** The limits of a command of the operator: any adapter that fits into memory. */
const LIMITS = { rankMax: 65_536, bytesMax: 2 ** 31 }

/** A model with an adapter: its base, and the source of the adapter. */
interface AdaptedModel {
  readonly base: CatalogueModel
  readonly source: string
}

/**
 * Writes the adapter of a model as a folder in PEFT's format, or the base model with the adapter
 * merged.
 */
export async function exportModel(
  env: Env,
  options: {
    readonly name: string | undefined
    readonly folder: string | undefined
    readonly isMerged: boolean
    readonly catalogue: Catalogue
    readonly fetchOptions: StoredOptions
  },
): Promise<void> {
  const { name, folder, isMerged, catalogue, fetchOptions } = options
  if (name === undefined || folder === undefined) {
    throw new UsageError('models export needs a model with an adapter, and a new folder')
  }
  const target = resolve(folder)
  if ((await stat(target).catch(() => undefined)) !== undefined) {
    throw new UsageError(`${target} exists already: name a new folder`)
  }
  const { base, source } = await findAdapted(env, name, catalogue)
  const wanted = { id: name, source, options: {}, files: ADAPTER_FILES }
  const files = await ensureModel(wanted, fetchOptions)
  const adapter = await readPeftAdapter(files, LIMITS)
  if (isMerged) {
    const runtime = openRuntime()
    try {
      const { onnxFile } = base.options
      const place = { folder: await ensureModel(base, fetchOptions) }
      const of = onnxFile === undefined ? place : { ...place, onnxFile }
      await mergeAdapter(runtime, of, { adapter, target })
    } finally {
      await runtime.close()
    }
  } else {
    await mkdir(target, { recursive: true })
    for (const file of ADAPTER_FILES) await cp(join(files, file), join(target, file))
  }
  console.log(target)
}

/** A model of models.json with an adapter, or one that a fine-tuning job made. */
async function findAdapted(env: Env, name: string, catalogue: Catalogue): Promise<AdaptedModel> {
  const known = catalogue.find(name)
  if (known?.adapter !== undefined) {
    return { base: baseOf(catalogue, known.adapter.baseId), source: known.adapter.source }
  }
  if (known !== undefined) throw new UsageError(`${name} has no adapter: copy ${known.source}`)
  if (!name.startsWith('ft:')) throw new UsageError(`there is no model ${name}`)
  const { config } = loadConfig(await withRunningInstallation(env))
  const { models } = tuningTables(config.database.tablePrefix)
  const database = await openReachableDatabase(config.database)
  try {
    const [row] = await database.db.select().from(models).where(eq(models.id, name))
    if (row === undefined) throw new UsageError(`there is no model ${name}`)
    return { base: baseOf(catalogue, row.model), source: `s3:${row.prefix}` }
  } finally {
    await database.close()
  }
}

function baseOf(catalogue: Catalogue, id: string): CatalogueModel {
  const base = catalogue.find(id)
  if (base !== undefined) return base
  throw new UsageError(`the base model ${id} is not in models.json any more`)
}
