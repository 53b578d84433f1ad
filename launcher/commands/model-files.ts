import { type Arguments, UsageError } from '#launcher/command-line.ts'
import type { Catalogue, CatalogueModel } from '#shared/catalogue.ts'
import type { Env, WorkerTierConfig } from '#shared/config/config.ts'
import { createLogger } from '#shared/logger.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { ADAPTER_FILES } from '#workers/adapters/peft-files.ts'
import { ensureModel, modelCacheDir } from '#workers/models/fetcher.ts'
import { parseHubSource } from '#workers/models/hub.ts'
import type { StoredOptions } from '#workers/models/stored-cache.ts'

import { convertModel } from './models-convert.ts'
import { showProgress } from './progress-bar.ts'

interface Context {
  readonly catalogue: Catalogue
  readonly fetchOptions: StoredOptions
  readonly env: Env
}

type Action = (context: Context, args: Arguments) => Promise<void>

const ACTIONS: Readonly<Record<string, Action>> = {
  async verify({ catalogue, fetchOptions }) {
    let faults = 0
    for (const model of catalogue.models) {
      const { id } = model
      const problem = await ensureModel(filesOf(model), atHand(fetchOptions)).then(
        () => undefined,
        (error: Error) => error.message,
      )
      console.log(`${id.padEnd(20)} ${problem ?? 'as it should be'}`)
      if (problem !== undefined) faults += 1
    }
    if (faults > 0) throw new Error(`${faults} model(s) are damaged or missing`)
  },
  async pull({ catalogue, fetchOptions }, { positionals, options }) {
    const name = positionals[1]
    if (name === undefined)
      throw new UsageError(
        'models pull needs a repository such as owner/name, or a model of models.json',
      )
    const known = catalogue.find(name)
    if (known !== undefined && options.file !== undefined) {
      throw new UsageError(
        `--file means nothing for ${name}: models.json lists it, and its options.onnxFile says the file`,
      )
    }
    const model = known ?? unlisted(name, options.file)
    if (known === undefined) requireRepository(name)
    console.log(await ensureModel(filesOf(model), { ...fetchOptions, isThorough: true }))
    if (known !== undefined) return
    console.log(`add it to models.json: { "id": "…", "kind": "…", "source": "${model.source}" }`)
  },
  async convert({ fetchOptions, env }, { positionals, options }) {
    const { out, weights } = options
    await convertModel(env, { name: positionals[1], out, weights, fetchOptions })
  },
  async export({ catalogue, fetchOptions, env }, { positionals, options }) {
    // Only this action needs a database driver.
    const { exportModel } = await import('./model-export.ts')
    const [, name, folder] = positionals
    const isMerged = options.merged !== undefined
    await exportModel(env, { name, folder, isMerged, catalogue, fetchOptions })
  },
}

/** Runs `models verify`, `pull`, `convert` or `export`. */
export async function runFileAction(
  name: string,
  options: {
    readonly catalogue: Catalogue
    readonly config: WorkerTierConfig
    readonly args: Arguments
    readonly env: Env
  },
): Promise<void> {
  const { catalogue, config, args, env } = options
  const storage = await openObjectStore(config.infra.storage)
  try {
    const fetchOptions = {
      cacheDir: modelCacheDir(config),
      hub: config.inference.hub,
      storage,
      log: createLogger({ level: 'warn' }),
      onProgress: showProgress,
    }
    await ACTIONS[name]?.({ catalogue, fetchOptions, env }, args)
  } finally {
    storage.close()
  }
}

function requireRepository(name: string): void {
  try {
    parseHubSource(name)
  } catch {
    throw new UsageError(
      `"${name}" is neither a model of models.json nor a repository such as owner/name or owner/name@revision`,
    )
  }
}

/** A repository of the hub that is not in models.json yet. */
function unlisted(repository: string, onnxFile: string | undefined): CatalogueModel {
  return {
    id: repository,
    kind: 'completion',
    source: `hub:${repository.replace(/^hub:/, '')}`,
    aliases: [],
    ownedBy: 'hub',
    created: 0,
    capabilities: [],
    options: onnxFile === undefined ? {} : { onnxFile },
  }
}

/** The files of the adapter, in addition to those of the base model. */
function filesOf(model: CatalogueModel): CatalogueModel & { readonly files?: readonly string[] } {
  const { adapter } = model
  return adapter === undefined ? model : { ...model, source: adapter.source, files: ADAPTER_FILES }
}

/** Verifies local files completely, without fetching. */
function atHand(options: StoredOptions): StoredOptions {
  return { ...options, isAtHand: true, isThorough: true }
}
