import { mkdir, rm, stat, utimes } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const REFRESH_MS = 5000
// A holder that has not shown itself for this long is gone.
const STALE_MS = 30_000
const POLL_MS = 200

/**
 * Runs `work` while no other process that takes the same lock does. The lock is a directory, which
 * only one can make; a lock whose holder died is taken over.
 */
export async function withFileLock<Result>(
  path: string,
  work: () => Promise<Result>,
  signal?: AbortSignal,
): Promise<Result> {
  await mkdir(dirname(path), { recursive: true })
  while (!(await tryLock(path))) await sleep(POLL_MS, undefined, signal && { signal })
  const refresh = setInterval(() => {
    const now = new Date()
    // A lock that is gone cannot be refreshed; the work ends all the same.
    utimes(path, now, now).catch(() => {})
  }, REFRESH_MS)
  try {
    return await work()
  } finally {
    clearInterval(refresh)
    await rm(path, { recursive: true, force: true })
  }
}

async function tryLock(path: string): Promise<boolean> {
  try {
    await mkdir(path)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  const held = await stat(path).catch(() => undefined)
  if (held !== undefined && Date.now() - held.mtimeMs > STALE_MS) {
    await rm(path, { recursive: true, force: true })
  }
  return false
}
