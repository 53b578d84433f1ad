import { stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'

import { failure } from '#shared/errors.ts'
import { findShipped } from '#shared/load-catalogue.ts'

import { variantFolder, type WantedSource } from './choose-files.ts'
import { ensureHubModel, filesBelow } from './hub-cache.ts'
import { verifyFolder } from './manifest.ts'
import { ensureStoredModel, type StoredOptions } from './stored-cache.ts'

/**
 * The folder with a model's files: a local one, or the cache, into which missing files are fetched
 * from the hub or from object storage. Files are verified against the model's manifest, if it has
 * one.
 */
export async function ensureModel(model: WantedSource, options: StoredOptions): Promise<string> {
  const folder = await locate(model, options)
  await verifyFolder(folder)
  return folder
}

/** The folder of pulled models: the configured one, or one below the data directory. */
export function modelCacheDir(config: {
  readonly inference: { readonly modelCacheDir: string }
  readonly infra: { readonly dataDir: string }
}): string {
  const { modelCacheDir: configured } = config.inference
  return resolve(configured === '' ? join(config.infra.dataDir, 'models') : configured)
}

async function locate(model: WantedSource, options: StoredOptions): Promise<string> {
  if (model.source.startsWith('hub:')) return ensureHubModel(model, options)
  if (model.source.startsWith('s3:')) return ensureStoredModel(model, options)
  const folder = findShipped(model.source)
  const found = await stat(folder).catch(() => undefined)
  if (found?.isDirectory() === true) {
    return join(folder, variantFolder(await filesBelow(folder), model.options))
  }
  throw failure.notFound(`the files of the model \`${model.id}\` are not there: ${folder}`, {
    code: 'model_not_available',
  })
}
