import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'

import { failure } from '#shared/errors.ts'
import { readFileWithin } from '#shared/read-file.ts'

import { pathInside } from './inside-folder.ts'

/** The expected size and digest of a file of a model. */
interface FileDigest {
  readonly sha256: string
  readonly bytes: number
}

/** The list of a model's files in `manifest.json`. */
export type Manifest = ReadonlyMap<string, FileDigest>

const MANIFEST_FILE = 'manifest.json'
const MANIFEST_BYTES_MAX = 16 << 20

/** The manifest of a folder, or undefined when it has none. Throws when it is malformed. */
export async function findManifest(folder: string): Promise<Manifest | undefined> {
  const path = join(folder, MANIFEST_FILE)
  let text: string
  try {
    const bytes = await readFileWithin(await pathInside(folder, MANIFEST_FILE), MANIFEST_BYTES_MAX)
    text = bytes.toString('utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
  const files = (parseJson(text, path) as { files?: unknown }).files
  if (typeof files !== 'object' || files === null) throw new Error(`${path}: "files" is missing`)
  return new Map(
    Object.entries(files).map(([name, entry]) => [name, parseEntry(path, name, entry)]),
  )
}

/** One sentence for each file that differs from the manifest; none without a manifest. */
async function findManifestProblems(folder: string): Promise<readonly string[]> {
  const manifest = await findManifest(folder)
  if (manifest === undefined) return []
  const problems: string[] = []
  for (const [name, digest] of manifest) {
    const problem = await findProblem(join(folder, name), digest)
    if (problem !== undefined) problems.push(`${name} ${problem}`)
  }
  return problems
}

/** Throws unless the folder exists and its files match its manifest, if it has one. */
export async function verifyFolder(folder: string): Promise<void> {
  const found = await stat(folder).catch(() => undefined)
  if (found?.isDirectory() !== true) {
    throw failure.notFound(`the model's folder ${folder} is not there`)
  }
  const problems = await findManifestProblems(folder)
  if (problems.length === 0) return
  throw failure.internal(`the model in ${folder} is damaged: ${problems.join('; ')}`, {
    code: 'model_damaged',
  })
}

/** The lower-case hexadecimal SHA-256 of a file. */
async function sha256OfFile(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer)
  return hash.digest('hex')
}

async function findProblem(path: string, digest: FileDigest): Promise<string | undefined> {
  const found = await stat(path).catch(() => undefined)
  if (found === undefined) return 'is missing'
  if (found.size !== digest.bytes) return `has ${found.size} bytes instead of ${digest.bytes}`
  return (await sha256OfFile(path)) === digest.sha256 ? undefined : 'has another SHA-256'
}

function parseJson(text: string, path: string): unknown {
  try {
    return JSON.parse(text) ?? {}
  } catch (error) {
    throw new Error(`${path} is not JSON`, { cause: error })
  }
}

function parseEntry(path: string, name: string, entry: unknown): FileDigest {
  const { sha256, bytes } = (entry ?? {}) as Partial<FileDigest>
  const isPlain =
    isPlainPath(name) && typeof bytes === 'number' && /^[0-9a-f]{64}$/.test(`${sha256}`)
  if (!isPlain) throw new Error(`${path}: the entry of "${name}" is wrong`)
  return { sha256: sha256 as string, bytes }
}

/** Whether a relative path stays inside its folder. */
export function isPlainPath(path: string): boolean {
  return (
    path.length <= 512 &&
    path.split('/').every((segment) => /^[^\\/:\0]+$/.test(segment) && !/^\.+$/.test(segment))
  )
}
