import { createWriteStream } from 'node:fs'
import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'

import { failure, ServiceError } from '#shared/errors.ts'
import { readFileWithin } from '#shared/read-file.ts'
import type { ObjectInfo, ObjectStore } from '#shared/storage/object-store.ts'

import { chooseFiles, type ListedFile, variantFolder, type WantedSource } from './choose-files.ts'
import { withFileLock } from './file-lock.ts'
import type { PullOptions } from './hub-cache.ts'
import { isPlainPath } from './manifest.ts'

/** The collaborators of fetching from object storage. */
export interface StoredOptions extends PullOptions {
  readonly storage: Pick<ObjectStore, 'get' | 'list'>
}

interface StoredFile extends ListedFile {
  readonly object: ObjectInfo
}

interface Place {
  readonly prefix: string
  readonly folder: string
  /** The list of a complete model's files; absent while some of them are being replaced. */
  readonly listing: string
}

const OBJECTS_MAX = 10_000
const LISTING_BYTES_MAX = 16 << 20

/**
 * The cache folder with the objects below `s3:<prefix>`; unchanged files stay. A failing storage
 * does not make a completely cached model unavailable.
 */
export async function ensureStoredModel(
  model: WantedSource,
  options: StoredOptions,
): Promise<string> {
  const prefix = model.source.slice('s3:'.length).replace(/^\/+|\/+$/g, '')
  if (!isPlainPath(prefix)) throw failure.invalidRequest(`"${model.source}" is not a prefix`)
  const folder = join(options.cacheDir, 'objects', prefix)
  const place = { prefix, folder, listing: `${folder}.listing.json` }
  return withFileLock(
    `${folder}.lock`,
    async () => {
      if (options.isAtHand !== true) await update(place, model, options)
      else if (!(await isWhole(place))) {
        throw failure.notFound(
          `the cache does not hold ${model.source}: \`millrace models pull ${model.id}\` fetches it`,
        )
      }
      return join(folder, variantFolder(await readListing(place.listing), model.options))
    },
    options.signal,
  )
}

async function update(place: Place, model: WantedSource, options: StoredOptions): Promise<void> {
  try {
    const listed = await listObjects(place.prefix, options.storage)
    await fetchAll(place, chooseStored(model, listed), options)
    await deleteOthers(place.folder, listed)
  } catch (error) {
    options.signal?.throwIfAborted()
    if (isAnswer(error) || !(await isWhole(place))) throw error
    const reason = (error as Error).message
    options.log.warn(
      { operation: 'model.pull', source: model.source, reason },
      'using the model of the cache',
    )
  }
}

/** Errors about the model itself, not about the state of the storage. */
function isAnswer(error: unknown): boolean {
  if (error instanceof ServiceError) return error.kind === 'notFound'
  const status = (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode
  return status === 404
}

async function fetchAll(
  { folder, listing }: Place,
  files: readonly StoredFile[],
  options: StoredOptions,
): Promise<void> {
  const flags = await Promise.all(files.map((file) => isCurrent(file, join(folder, file.path))))
  const changed = files.filter((_file, index) => !flags[index])
  if (changed.length > 0) await rm(listing, { force: true })
  for (const file of changed) await fetchObject(file, join(folder, file.path), options)
  const sizes = files.map(({ path, bytes }) => ({ path, bytes }))
  await mkdir(dirname(listing), { recursive: true })
  await writeFile(`${listing}.part`, JSON.stringify(sizes))
  await rename(`${listing}.part`, listing)
}

/** Whether every file of the last listing is there. */
async function isWhole({ folder, listing }: Place): Promise<boolean> {
  const files = await readListing(listing)
  const found = await Promise.all(
    files.map(async ({ path, bytes }) => {
      const stats = await stat(join(folder, path)).catch(() => undefined)
      return stats?.size === bytes
    }),
  )
  return found.length > 0 && found.every(Boolean)
}

async function readListing(path: string): Promise<readonly ListedFile[]> {
  try {
    const listing: unknown = JSON.parse(
      (await readFileWithin(path, LISTING_BYTES_MAX)).toString('utf8'),
    )
    return Array.isArray(listing) && listing.every(isListed) ? listing : []
  } catch {
    // Without a valid listing, the model counts as incomplete.
    return []
  }
}

function isListed(entry: unknown): entry is ListedFile {
  const { path, bytes } = (entry ?? {}) as Partial<ListedFile>
  return typeof path === 'string' && isPlainPath(path) && Number.isSafeInteger(bytes)
}

/** A graph that is no longer in storage must not be run instead of its replacement. */
async function deleteOthers(folder: string, listed: readonly StoredFile[]): Promise<void> {
  const known = new Set(listed.map(({ path }) => join(folder, path)))
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name)
    // Locks, parts and listings belong to models whose prefix is below this one.
    const isOurs = entry.isFile() && !/\.(part|listing\.json|lock\/owner\.json)$/.test(path)
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

/** A manifest lists all files of the model, so all are fetched. */
function chooseStored(model: WantedSource, files: readonly StoredFile[]): readonly StoredFile[] {
  if (files.some(({ path }) => path === 'manifest.json')) return files
  try {
    return chooseFiles(files, model)
  } catch (error) {
    throw failure.notFound(`${model.source} cannot be used: ${(error as Error).message}`, {
      cause: error,
    })
  }
}

async function isCurrent({ bytes, object }: StoredFile, target: string): Promise<boolean> {
  const found = await stat(target).catch(() => undefined)
  return found?.size === bytes && found.mtimeMs >= Math.floor(object.modifiedAtMs)
}

async function fetchObject(
  file: StoredFile,
  target: string,
  options: StoredOptions,
): Promise<void> {
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
