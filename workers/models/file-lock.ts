import { randomUUID } from 'node:crypto'
import { mkdir, readFile, readlink, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const REFRESH_MS = 5000
// A holder that has not refreshed its lock for this long is gone.
const STALE_MS = 30_000
const POLL_MS = 200

/** The holder of a lock: a process of one running kernel, as far as the system identifies it. */
interface Owner {
  readonly id: string
  readonly pid: number
  /** The scope in which the process id is unique; empty if unknown. */
  readonly realm: string
}

/**
 * Runs `work` while this process holds a lock. The lock is a directory, which only one process can
 * create; a lock whose holder died is replaced.
 */
export async function withFileLock<Result>(
  path: string,
  work: () => Promise<Result>,
  signal?: AbortSignal,
): Promise<Result> {
  await mkdir(dirname(path), { recursive: true })
  const owner: Owner = { id: randomUUID(), pid: process.pid, realm: await realmOfPids() }
  while (!(await tryLock(path, owner))) await sleep(POLL_MS, undefined, signal && { signal })
  const refresh = setInterval(() => {
    const now = new Date()
    // A lock that was removed cannot be refreshed; the work continues.
    utimes(path, now, now).catch(() => {})
  }, REFRESH_MS)
  try {
    return await work()
  } finally {
    clearInterval(refresh)
    // A process that was suspended for too long has lost the lock and must not remove that of the
    // next holder.
    if ((await findOwner(path))?.id === owner.id) await rm(path, { recursive: true, force: true })
  }
}

async function tryLock(path: string, owner: Owner): Promise<boolean> {
  try {
    await mkdir(path)
    await writeFile(join(path, 'owner.json'), JSON.stringify(owner)).catch(
      async (error: NodeJS.ErrnoException) => {
        // Another process mistook this for the lock of a crashed one.
        if (error.code === 'ENOENT') throw Object.assign(error, { code: 'EEXIST' })
        await rm(path, { recursive: true, force: true })
        throw error
      },
    )
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  const holder = await findOwner(path)
  if (isDead(holder, owner.realm) || (await isStale(path))) await takeAway(path, holder)
  return false
}

/** Removes the lock of a holder that is gone, but not one that was created in between. */
async function takeAway(path: string, holder: Owner | undefined): Promise<void> {
  const aside = `${path}.${randomUUID()}`
  try {
    await rename(path, aside)
  } catch {
    // Another process was faster.
    return
  }
  const isOther = (await findOwner(aside))?.id !== holder?.id
  if (isOther) await rename(aside, path).catch(() => {})
  await rm(aside, { recursive: true, force: true })
}

async function isStale(path: string): Promise<boolean> {
  const held = await stat(path).catch(() => undefined)
  return held !== undefined && Date.now() - held.mtimeMs > STALE_MS
}

/** The lock of a killed process of this machine can be replaced at once. */
function isDead(holder: Owner | undefined, realm: string): boolean {
  if (holder === undefined || realm === '' || holder.realm !== realm) return false
  try {
    process.kill(holder.pid, 0)
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH'
  }
}

async function findOwner(path: string): Promise<Owner | undefined> {
  try {
    const { id, pid, realm } = JSON.parse(
      await readFile(join(path, 'owner.json'), 'utf8'),
    ) as Partial<Owner>
    if (typeof id !== 'string' || typeof realm !== 'string') return undefined
    return Number.isSafeInteger(pid) && (pid as number) > 0
      ? { id, pid: pid as number, realm }
      : undefined
  } catch {
    // The lock is being created, or a crash left it without an owner.
    return undefined
  }
}

/** Process ids are unique per boot and namespace, because containers count from one again. */
async function realmOfPids(): Promise<string> {
  try {
    const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8')
    return `${boot.trim()} ${await readlink('/proc/self/ns/pid')}`
  } catch {
    return ''
  }
}
