import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'

import { failure, ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'
import { readFileWithin } from '#shared/read-file.ts'

import { chooseFiles, type ListedFile, variantFolder, type WantedSource } from './choose-files.ts'
import { checksumOf, download } from './download.ts'
import { withFileLock } from './file-lock.ts'
import {
  type HubFile,
  type HubOptions,
  type HubSource,
  listHubFiles,
  parseHubSource,
  resolveRevision,
} from './hub.ts'
import { isPlainPath } from './manifest.ts'

/** The progress of a pull. */
export interface PullProgress {
  readonly file: string
  readonly doneBytes: number
  readonly totalBytes: number
}

/** The cache of hub files, and how the hub is queried. */
export interface PullOptions {
  readonly cacheDir: string
  readonly hub: HubOptions & { readonly isOffline: boolean }
  readonly log: Logger
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: PullProgress) => void
  /** Verifies the bytes of existing files, not only their sizes. */
  readonly isThorough?: boolean
  /** Uses only the cache, without network access. */
  readonly isAtHand?: boolean
}

/** Why only the cache is used, and what to do if it does not contain the model. */
interface Excuse {
  readonly reason: string
  readonly remedy: string
}

/**
 * The folder of a hub model; missing files are fetched first. The cache has the layout of Hugging
 * Face's own tools (`models--owner--name/refs` and `/snapshots/<commit>`), so that they share
 * files. If several processes need a model, one fetches it and the others wait.
 */
export async function ensureHubModel(model: WantedSource, options: PullOptions): Promise<string> {
  const source = parseHubSource(model.source)
  const folder = join(options.cacheDir, 'hub', `models--${source.repository.replace('/', '--')}`)
  const excuse = excuseOf(model, options)
  if (excuse !== undefined) return findOffline(folder, source, model, { ...options, ...excuse })
  const asking = { ...options, hub: { ...options.hub, signal: options.signal } }
  let commit: string
  try {
    commit = await currentCommit(asking.hub, source)
  } catch (error) {
    options.signal?.throwIfAborted()
    // Only an answer of the hub makes a cached file outdated; a failing hub must not make a cached
    // model unavailable.
    if (!(error instanceof ServiceError) || error.kind === 'notFound') throw error
    const excuse = { reason: `${error.message}, and `, remedy: 'try again later' }
    const snapshot = await findOffline(folder, source, model, { ...options, ...excuse })
    options.log.warn(
      { operation: 'model.pull', repository: source.repository, reason: error.message },
      'using the model of the cache',
    )
    return snapshot
  }
  return withFileLock(
    join(folder, '.pull.lock'),
    () => pull(folder, { ...source, commit }, model, asking),
    options.signal,
  )
}

function excuseOf({ id }: WantedSource, { hub, isAtHand }: PullOptions): Excuse | undefined {
  if (isAtHand === true) {
    return { reason: '', remedy: `\`millrace models pull ${id}\` fetches it` }
  }
  if (!hub.isOffline) return undefined
  return { reason: 'HF_HUB_OFFLINE is set, and ', remedy: 'it can be fetched once that is unset' }
}

/** A full commit id needs no query to the hub. */
async function currentCommit(hub: HubOptions, source: HubSource): Promise<string> {
  if (/^[0-9a-f]{40}$/.test(source.revision)) return source.revision
  return resolveRevision(hub, source)
}

async function pull(
  folder: string,
  source: HubSource & { readonly commit: string },
  model: WantedSource,
  options: PullOptions,
): Promise<string> {
  const snapshot = join(folder, 'snapshots', source.commit)
  const listed = await listFiles(folder, source, options.hub)
  const files = chooseOf(source, listed, model)
  const totalBytes = files.reduce((sum, { bytes }) => sum + bytes, 0)
  let doneBytes = 0
  for (const file of files) {
    const target = join(snapshot, file.path)
    const report = (bytes: number) =>
      options.onProgress?.({ file: file.path, doneBytes: doneBytes + bytes, totalBytes })
    if (!(await isThere(target, file, options.isThorough === true))) {
      await download({
        hub: options.hub,
        source,
        file,
        target,
        partFile: join(folder, 'blobs', `${file.checksum.hex}.part`),
        signal: options.signal,
        onBytes: report,
      })
    }
    report(file.bytes)
    doneBytes += file.bytes
  }
  // Written last, so that a revision that is known offline is complete.
  await writeWhole(join(folder, 'refs', source.revision), source.commit)
  await sweep(folder, listed)
  return join(snapshot, variantFolder(files, model.options))
}

/** Removes leftovers of killed pulls, except parts of files that may still be resumed. */
async function sweep(folder: string, listed: readonly HubFile[]): Promise<void> {
  const wanted = new Set(listed.map(({ checksum }) => `${checksum.hex}.part`))
  for (const room of ['blobs', 'listings', 'refs']) {
    const names = await readdir(join(folder, room), { recursive: true }).catch(() => [])
    const left = names.filter(
      (name) => /\.\d+\.new$/.test(name) || (name.endsWith('.part') && !wanted.has(name)),
    )
    for (const name of left) await rm(join(folder, room, name), { force: true })
  }
}

/** The listing of a commit never changes, so it is fetched once. */
async function listFiles(
  folder: string,
  source: HubSource & { readonly commit: string },
  hub: HubOptions,
): Promise<readonly HubFile[]> {
  const path = listingPath(folder, source.commit)
  const known = await readListing(path)
  if (known !== undefined) return known
  const files = await listHubFiles(hub, source, source.commit)
  await writeWhole(path, JSON.stringify(files))
  return files
}

/** The snapshot in the cache, if it contains all files that the model needs. */
async function findOffline(
  folder: string,
  source: HubSource,
  model: WantedSource,
  { reason, remedy, isThorough }: Pick<PullOptions, 'isThorough'> & Excuse,
): Promise<string> {
  const ref = await readFileWithin(join(folder, 'refs', source.revision), REF_BYTES_MAX).catch(
    () => undefined,
  )
  const known = ref?.toString('utf8').trim() ?? ''
  const commit = /^[0-9a-f]{40}$/.test(known) ? known : source.revision
  const snapshot = join(folder, 'snapshots', commit)
  const present = await filesBelow(snapshot)
  if (present.length === 0) {
    throw failure.notFound(
      `${reason}the cache does not hold ${source.repository}@${source.revision}: ${remedy}`,
    )
  }
  // Without a listing another tool filled the cache, so its files are used as they are.
  const listing = await readListing(listingPath(folder, commit))
  const listed: readonly ListedFile[] = listing ?? present
  const sizes = new Map(present.map(({ path, bytes }) => [path, bytes]))
  const chosen = chooseOf(source, listed, model)
  const missing = chosen.filter(({ path, bytes }) => sizes.get(path) !== bytes)
  if (missing.length === 0) {
    const sums =
      isThorough === true && listing !== undefined ? chooseOf(source, listing, model) : []
    for (const file of sums) await verify(model, file, join(snapshot, file.path))
    return join(snapshot, variantFolder(chosen, model.options))
  }
  throw failure.notFound(
    `${reason}the cache holds ${source.repository} only in part (${missing[0]?.path} is missing): ${remedy}`,
  )
}

async function verify({ id, source }: WantedSource, file: HubFile, path: string): Promise<void> {
  if ((await checksumOf(path, file)) === file.checksum.hex) return
  throw failure.internal(
    `${source}: ${file.path} is damaged, its checksum is wrong: \`millrace models pull ${id}\` fetches it again`,
    { code: 'model_damaged' },
  )
}

function chooseOf<File extends ListedFile>(
  source: HubSource,
  files: readonly File[],
  model: WantedSource,
): readonly File[] {
  try {
    return chooseFiles(files, model)
  } catch (error) {
    const reason = (error as Error).message
    throw failure.notFound(`${source.repository} cannot be used: ${reason}`, { cause: error })
  }
}

async function isThere(target: string, file: HubFile, isThorough: boolean): Promise<boolean> {
  const found = await stat(target).catch(() => undefined)
  if (found?.size !== file.bytes) return false
  return !isThorough || (await checksumOf(target, file)) === file.checksum.hex
}

/** All files of a folder, including targets of links. */
export async function filesBelow(folder: string): Promise<ListedFile[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => [])
  const files = await Promise.all(
    entries.map(async (entry) => {
      const path = join(entry.parentPath, entry.name)
      // Other tools create links to blobs, so links are followed.
      const found = await stat(path).catch(() => undefined)
      if (found?.isFile() !== true) return []
      return [{ path: relative(folder, path).split(sep).join('/'), bytes: found.size }]
    }),
  )
  return files.flat()
}

const REF_BYTES_MAX = 4096
const LISTING_BYTES_MAX = 64 << 20 // a listing has 50,000 files, each some 700 bytes at most

function listingPath(folder: string, commit: string): string {
  return join(folder, 'listings', `${commit}.json`)
}

async function readListing(path: string): Promise<readonly HubFile[] | undefined> {
  try {
    const listing: unknown = JSON.parse(
      (await readFileWithin(path, LISTING_BYTES_MAX)).toString('utf8'),
    )
    if (Array.isArray(listing) && listing.length > 0 && listing.every(isListed)) return listing
  } catch {
    // A missing or unreadable listing is fetched again.
  }
  return undefined
}

function isListed(entry: unknown): entry is HubFile {
  const { path, bytes, checksum } = (entry ?? {}) as Partial<HubFile>
  const isHex = /^[0-9a-f]{40,64}$/.test(`${checksum?.hex}`)
  return typeof path === 'string' && isPlainPath(path) && Number.isSafeInteger(bytes) && isHex
}

async function writeWhole(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true })
  const staged = `${path}.${process.pid}.new`
  try {
    await writeFile(staged, text)
    await rename(staged, path)
  } finally {
    await rm(staged, { force: true })
  }
}
