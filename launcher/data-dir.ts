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

/** Random secrets of one installation, made once. */
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
 * Makes this process the only one that uses a data directory. Throws one sentence while another
 * process does; a lock whose process is gone is taken over. Returns what gives it back.
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

/** A lock appears whole, with its owner's name: half of one would be taken for a crash's. */
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

/** Puts this lock in the place of one whose process is gone. One at a time may: a faster one is left alone. */
async function takeOver(mine: string, file: string): Promise<boolean> {
  const claim = `${file}.claim`
  if (!(await linkIfNew(mine, claim))) {
    // Its owner ended in the middle of this.
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

/** The secrets of a data directory; missing ones are made. The file is for its owner alone. */
export async function loadSecrets(dataDir: string): Promise<Secrets> {
  const file = join(dataDir, 'secrets.json')
  const stored = await readSecrets(file)
  const missing = Object.keys(SECRET_GENERATORS).filter((name) => typeof stored[name] !== 'string')
  if (missing.length === 0) return stored as unknown as Secrets
  for (const name of missing) stored[name] = SECRET_GENERATORS[name as keyof Secrets]()
  // A crash must not leave half a file: the database cannot be opened without its password.
  await writeFile(`${file}.new`, `${JSON.stringify(stored, null, 2)}\n`, { mode: 0o600 })
  await rename(`${file}.new`, file)
  return stored as unknown as Secrets
}

/** The process that uses a data directory now, if there is one. */
export async function findDataDirOwner(dataDir: string): Promise<number | undefined> {
  return findOwner(join(dataDir, 'launcher.lock'))
}

// Node's own recursion never ends where the system answers ENOENT in a folder that is there, as in /proc.
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

/** The process that holds the lock, if it still lives; a later one of the same number does not count. */
async function ownerIn(text: string): Promise<number | undefined> {
  const { pid, startedAt } = readLock(text)
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return undefined
  }
  return (await startOf(pid)) === startedAt ? pid : undefined
}

/** A lock file that a crash damaged names no owner. */
function readLock(text: string): { readonly pid: number; readonly startedAt: string } {
  try {
    const { pid, startedAt } = JSON.parse(text) as { pid?: unknown; startedAt?: unknown }
    if (typeof pid === 'number' && typeof startedAt === 'string') return { pid, startedAt }
  } catch {
    // It was broken off while it was written.
  }
  return { pid: 0, startedAt: 'never' }
}

/** When a process started, in the kernel's ticks; empty where the system does not say. */
async function startOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? ''
}
