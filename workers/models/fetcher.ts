import { createWriteStream } from 'node:fs'
import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises'
import { dirname, isAbsolute, join, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'

import type { CatalogueModel } from '#shared/catalogue.ts'
import { failure } from '#shared/errors.ts'
import type { ObjectInfo, ObjectStore } from '#shared/storage/object-store.ts'

import { chooseFiles, type ListedFile } from './choose-files.ts'
import { withFileLock } from './file-lock.ts'
import { ensureHubModel, type PullOptions } from './hub-cache.ts'
import { verifyFolder, isPlainPath } from './manifest.ts'

export interface FetchOptions extends PullOptions {
  /** What the folders of the catalogue are relative to. */
  readonly rootDir: string
  readonly storage: Pick<ObjectStore, 'get' | 'list'>
}

const OBJECTS_MAX = 10_000

/**
 * The folder that holds a model's files: one of this machine, or the cache, into which it is fetched
 * from the hub or from object storage when it is not there. Files are checked against the model's
 * manifest, if it has one.
 */
export async function ensureModel(model: CatalogueModel, options: FetchOptions): Promise<string> {
  const folder = await locate(model, options)
  await verifyFolder(folder)
  return folder
}

/** Where pulled models are kept: the configured folder, or one below the data directory. */
export function modelCacheDir(config: {
  readonly inference: { readonly modelCacheDir: string }
  readonly infra: { readonly dataDir: string }
}): string {
  const { modelCacheDir: configured } = config.inference
  return resolve(configured === '' ? join(config.infra.dataDir, 'models') : configured)
}

async function locate(model: CatalogueModel, options: FetchOptions): Promise<string> {
  if (model.source.startsWith('hub:')) return ensureHubModel(model, options)
  if (model.source.startsWith('s3:')) return ensureStoredModel(model, options)
  const { source } = model
  const folder = isAbsolute(source) ? source : join(options.rootDir, source)
  const found = await stat(folder).catch(() => undefined)
  if (found?.isDirectory() === true) return folder
  throw failure.notFound(`the files of the model \`${model.id}\` are not there: ${folder}`, {
    code: 'model_not_available',
  })
}

interface StoredFile extends ListedFile {
  readonly object: ObjectInfo
}

/** Brings the objects below `s3:<prefix>` to the cache; those that have not changed stay. */
async function ensureStoredModel(model: CatalogueModel, options: FetchOptions): Promise<string> {
  const prefix = model.source.slice('s3:'.length).replace(/^\/+|\/+$/g, '')
  if (!isPlainPath(prefix)) throw failure.invalidRequest(`"${model.source}" is not a prefix`)
  const folder = join(options.cacheDir, 'objects', prefix)
  return withFileLock(
    `${folder}.lock`,
    async () => {
      const listed = await listObjects(prefix, options.storage)
      const files = chooseStored(model, listed)
      for (const file of files) await fetchObject(file, join(folder, file.path), options)
      await forgetOthers(folder, listed)
      return folder
    },
    options.signal,
  )
}

/** A graph that storage has no longer must not be run instead of the one that replaced it. */
async function forgetOthers(folder: string, listed: readonly StoredFile[]): Promise<void> {
  const known = new Set(listed.map(({ path }) => join(folder, path)))
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name)
    // Locks and parts belong to models whose prefix lies below this one.
    const isOurs = entry.isFile() && !/\.(part|lock\/owner\.json)$/.test(path)
    if (isOurs && !known.has(path)) await rm(path, { force: true })
  }
}

async function listObjects(
  prefix: string,
  storage: Pick<ObjectStore, 'list'>,
): Promise<readonly StoredFile[]> {
  const files: StoredFile[] = []
  for await (const object of storage.list(`${prefix}/`)) {
    const path = object.key.slice(prefix.length + 1)
    if (isPlainPath(path)) files.push({ path, bytes: object.bytes, object })
    if (files.length > OBJECTS_MAX)
      throw failure.upstream(`there are too many objects in ${prefix}`)
  }
  return files
}

/** With a manifest beside them, all files of the manifest's list would be checked, so all are taken. */
function chooseStored(model: CatalogueModel, files: readonly StoredFile[]): readonly StoredFile[] {
  if (files.some(({ path }) => path === 'manifest.json')) return files
  try {
    return chooseFiles(files, model)
  } catch (error) {
    throw failure.notFound(`${model.source} cannot be used: ${(error as Error).message}`, {
      cause: error,
    })
  }
}

async function fetchObject(file: StoredFile, target: string, options: FetchOptions): Promise<void> {
  const found = await stat(target).catch(() => undefined)
  const isCurrent =
    found?.size === file.bytes && found.mtimeMs >= Math.floor(file.object.modifiedAtMs)
  if (isCurrent) return
  await mkdir(dirname(target), { recursive: true })
  const staged = `${target}.part`
  try {
    const { body } = await options.storage.get(file.object.key)
    const cancel = options.signal === undefined ? {} : { signal: options.signal }
    await pipeline(body, createWriteStream(staged), cancel)
    if ((await stat(staged)).size !== file.bytes) {
      throw failure.upstream(`the object ${file.object.key} came in part only`)
    }
    await rename(staged, target)
  } finally {
    await rm(staged, { force: true })
  }
}
