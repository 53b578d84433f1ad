import { randomBytes, randomUUID } from 'node:crypto'
import {
  constants,
  copyFile,
  link,
  mkdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'

/** Random secrets of one installation, generated once. */
export interface Secrets {
  readonly jwtSecret: string
  readonly apiKey: string
  readonly urlSigningSecret: string
  readonly adminToken: string
  readonly redisPassword: string
  readonly postgresPassword: string
  /** Encrypts request content in Redis. */
  readonly encryptionKey: string
}

const random = () => randomBytes(32).toString('hex')

const SECRET_GENERATORS: { readonly [Name in keyof Secrets]: () => string } = {
  jwtSecret: random,
  apiKey: () => `mr-${randomBytes(32).toString('base64url')}`,
  urlSigningSecret: random,
  adminToken: random,
  redisPassword: random,
  postgresPassword: random,
  encryptionKey: random,
}

/** New random secrets. */
export function makeSecrets(): Secrets {
  const entries = Object.entries(SECRET_GENERATORS).map(([name, make]) => [name, make()])
  return Object.fromEntries(entries) as unknown as Secrets
}

const LOCK_ATTEMPTS = 5
// Error codes of file systems without hard links.
const WITHOUT_LINKS = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK']

/**
 * Locks a data directory for this process. Throws one sentence while another process holds it; a
 * lock whose process has ended is replaced. Returns the function that releases it.
 */
export async function lockDataDir(dataDir: string): Promise<() => Promise<void>> {
  await makeFolder(resolve(dataDir)).catch(unusable(dataDir))
  const file = join(dataDir, 'launcher.lock')
  const mine = `${file}.${randomUUID()}`
  const lock = JSON.stringify({ pid: process.pid, startedAt: await startOf(process.pid) })
  try {
    await writeFile(mine, lock, { mode: 0o600 }).catch(unusable(dataDir))
    for (let attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
      const isTaken =
        (await linkIfNew(mine, file).catch(unusable(dataDir))) || (await takeOver(mine, file))
      if (isTaken) return () => rm(file, { force: true })
      const owner = await findOwner(file)
      if (owner !== undefined) {
        throw new Error(
          `Another Millrace (process ${owner}) uses ${resolve(dataDir)}: stop it, or set MILLRACE_DATA_DIR.`,
        )
      }
    }
  } finally {
    await rm(mine, { force: true })
  }
  throw new Error(`Another Millrace starts in ${resolve(dataDir)} at this moment.`)
}

/**
 * Creates the lock atomically with its content: a partial file would look like the lock of a
 * crashed process.
 */
async function linkIfNew(mine: string, file: string): Promise<boolean> {
  try {
    await link(mine, file)
    return true
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') return false
    if (!WITHOUT_LINKS.includes(code)) throw error
  }
  return copyFile(mine, file, constants.COPYFILE_EXCL).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'EEXIST') return false
      throw error
    },
  )
}

/** Replaces the lock of a process that has ended. Only one process at a time may replace it. */
async function takeOver(mine: string, file: string): Promise<boolean> {
  const claim = `${file}.claim`
  if (!(await linkIfNew(mine, claim))) {
    // The owner of the claim ended before it removed the claim.
    if ((await findOwner(claim)) === undefined) await rm(claim, { force: true })
    return false
  }
  try {
    const text = await readFile(file, 'utf8').catch(() => undefined)
    if (text === undefined || (await ownerIn(text)) !== undefined) return false
    await rename(mine, file)
    return true
  } finally {
    await rm(claim, { force: true })
  }
}

/**
 * The secrets of a data directory; missing ones are generated. Only the owner can read the file.
 */
export async function loadSecrets(dataDir: string): Promise<Secrets> {
  const file = join(dataDir, 'secrets.json')
  const stored = await readSecrets(file)
  const missing = Object.keys(SECRET_GENERATORS).filter((name) => typeof stored[name] !== 'string')
  if (missing.length === 0) return stored as unknown as Secrets
  for (const name of missing) stored[name] = SECRET_GENERATORS[name as keyof Secrets]()
  // Written atomically: without its password the database cannot be opened.
  await writeFile(`${file}.new`, `${JSON.stringify(stored, null, 2)}\n`, { mode: 0o600 })
  await rename(`${file}.new`, file)
  return stored as unknown as Secrets
}

/** The process that holds a data directory, if any. */
export async function findDataDirOwner(dataDir: string): Promise<number | undefined> {
  return findOwner(join(dataDir, 'launcher.lock'))
}

// Node's recursive mkdir never ends where the system answers ENOENT for an existing folder, as in
// /proc.
async function makeFolder(path: string): Promise<void> {
  const make = () => mkdir(path, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => error)
  const refusal = await make()
  if (refusal?.code === 'ENOENT') {
    await makeFolder(dirname(path))
    const again = await make()
    if (again !== undefined) throw again
    return
  }
  const isFolder = (await stat(path).catch(() => undefined))?.isDirectory() ?? false
  if (refusal !== undefined && !isFolder) throw refusal
}

function unusable(dataDir: string): (error: Error) => never {
  return (error) => {
    throw new Error(
      `The data directory ${resolve(dataDir)} cannot be used: ${error.message}. Set MILLRACE_DATA_DIR to a folder that may be written.`,
    )
  }
}

async function readSecrets(file: string): Promise<Record<string, unknown>> {
  try {
    return JSON.parse(await readFile(file, 'utf8'))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {}
    throw new Error(`${file} cannot be read: ${(error as Error).message}`)
  }
}

async function findOwner(file: string): Promise<number | undefined> {
  return ownerIn(await readFile(file, 'utf8').catch(() => ''))
}

/**
 * The process that holds the lock, if it is alive. The start time distinguishes it from a later
 * process with the same id.
 */
async function ownerIn(text: string): Promise<number | undefined> {
  const { pid, startedAt } = readLock(text)
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return undefined
  }
  return (await startOf(pid)) === startedAt ? pid : undefined
}

/** Reads a lock file; a damaged one has no owner. */
function readLock(text: string): { readonly pid: number; readonly startedAt: string } {
  try {
    const { pid, startedAt } = JSON.parse(text) as { pid?: unknown; startedAt?: unknown }
    if (typeof pid === 'number' && typeof startedAt === 'string') return { pid, startedAt }
  } catch {
    // The file was not completely written.
  }
  return { pid: 0, startedAt: 'never' }
}

/** The start time of a process in kernel ticks; empty where the system does not report it. */
async function startOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? ''
}
