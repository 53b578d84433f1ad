import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'

import type { Env } from '#shared/config/config.ts'

import { findDataDirOwner } from './data-dir.ts'

const FILE = 'environment.json'
// Settings that `millrace up` chooses or generates; all others are in the environment or in .env.
const REMEMBERED =
  /^(REDIS_URL|AUTH_DB_|DATABASE_URL|AUTH_SITE_URL|AUTH_API_|AUTH_JWT_SECRET|AUTH_SMTP_|MILLRACE_)/

/**
 * Stores the addresses of a running installation in a file that only its owner can read, so that
 * other commands find the database. Returns the function that removes it.
 */
export async function rememberEnvironment(dataDir: string, env: Env): Promise<() => Promise<void>> {
  const file = join(dataDir, FILE)
  const entries = Object.entries(env).filter(([name]) => REMEMBERED.test(name))
  await writeFile(`${file}.new`, JSON.stringify(Object.fromEntries(entries)), { mode: 0o600 })
  await rename(`${file}.new`, file)
  return () => rm(file, { force: true })
}

/**
 * The environment with the settings of the installation that runs in the data directory. Throws one
 * sentence when a database is neither configured nor running.
 */
export async function withRunningInstallation(env: Env): Promise<Env> {
  const dataDir = resolve(env.MILLRACE_DATA_DIR || '.data')
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value))
  if (given.AUTH_DB_DATABASE_URL ?? given.DATABASE_URL) return env
  if ((await findDataDirOwner(dataDir)) !== undefined) {
    const text = await readFile(join(dataDir, FILE), 'utf8').catch(() => undefined)
    if (text !== undefined) return { ...JSON.parse(text), ...given }
  }
  throw new Error(
    'There is no database: start Millrace with `npm start` and try again while it runs, or set DATABASE_URL.',
  )
}
