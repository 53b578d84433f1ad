import { randomUUID } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { access, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

import { failure } from '#shared/errors.ts'

import {
  assertPlainKey,
  type ObjectInfo,
  type ObjectStore,
  type PutOptions,
  STAGED,
  storageFull,
} from './object-store.ts'

// The disk is full, or the user has no disk quota left.
const FULL: readonly string[] = ['ENOSPC', 'EDQUOT']

/** An object store on a local directory, for the embedded default. */
export function openDirectoryStore(folder: string): ObjectStore {
  const root = resolve(folder)
  const pathOf = (key: string) => {
    assertPlainKey(key)
    return join(root, key)
  }
  return {
    put: (key, body, options) => put(root, pathOf(key), body, options),
    async get(key, range) {
      const file = await open(pathOf(key), 'r').catch(translateMissing)
      const { size } = await file.stat()
      const end = range?.end ?? size - 1
      // With an explicit end, the stream ends after the last byte without another read.
      const body = file.createReadStream({ start: range?.start ?? 0, ...(end >= 0 && { end }) })
      return { body, totalBytes: size }
    },
    head: (key) => infoOf(root, pathOf(key)),
    delete: (key) => rm(pathOf(key), { force: true }),
    list: (prefix) => list(root, prefix),
    async check() {
      await mkdir(join(root, STAGED), { recursive: true })
      await access(root)
    },
    close() {
      // A directory store holds no open resources.
    },
  }
}

async function put(
  root: string,
  path: string,
  body: Readable | Buffer,
  options: PutOptions = {},
): Promise<{ bytes: number }> {
  // The staging folder is on the same file system, so that a rename publishes the file atomically.
  const staged = join(root, STAGED, randomUUID())
  try {
    await mkdir(dirname(staged), { recursive: true })
    await mkdir(dirname(path), { recursive: true })
    const target = createWriteStream(staged, { flush: true })
    const source = Buffer.isBuffer(body) ? Readable.from([body]) : body
    await pipeline(source, target, options.signal === undefined ? {} : { signal: options.signal })
    await rename(staged, path)
    return { bytes: target.bytesWritten }
  } catch (error) {
    await rm(staged, { force: true })
    throw FULL.includes((error as NodeJS.ErrnoException).code ?? '') ? storageFull(error) : error
  }
}

async function infoOf(root: string, path: string): Promise<ObjectInfo | undefined> {
  const stats = await stat(path).catch(() => undefined)
  if (!stats?.isFile()) return undefined
  const key = relative(root, path).split(sep).join('/')
  return { key, bytes: stats.size, modifiedAtMs: stats.mtimeMs }
}

async function* list(root: string, prefix: string): AsyncGenerator<ObjectInfo> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true }).catch(() => [])
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => ({ path, key: relative(root, path).split(sep).join('/') }))
    .filter(({ key }) => key.startsWith(prefix) && (prefix === STAGED || !key.startsWith(STAGED)))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
  for (const { path } of paths) {
    const info = await infoOf(root, path)
    if (info !== undefined) yield info
  }
}

function translateMissing(error: NodeJS.ErrnoException): never {
  if (error.code === 'ENOENT') throw failure.notFound('No such object.', { cause: error })
  throw error
}
