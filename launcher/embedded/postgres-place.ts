import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, chown, cp, mkdir, rename } from 'node:fs/promises'
import { join } from 'node:path'

/** The data folder of Postgres and its user. */
export interface PostgresPlace {
  /** The data directory. */
  readonly folder: string
  /** The command that runs one of its programs as an allowed user. */
  run(program: string, args: readonly string[]): { command: string; args: readonly string[] }
  /** Changes the owner of a file to that user. */
  own(path: string): Promise<void>
}

const NAMESPACE = ['-U', '--map-user=1000', '--map-group=1000']
const UNPRIVILEGED_ID = 65_534
const SHELTER = '/var/lib/millrace'

/**
 * Postgres refuses to run as root. Inside a user namespace root appears as an ordinary user and
 * still owns its files: no system user is needed, and a home folder of mode 700 stays accessible.
 * Where the system has no user namespaces (in most containers), Postgres runs as uid 65534, with
 * its data and a copy of its programs in a folder that this user can reach.
 */
export async function findPlace(dataDir: string, home: string): Promise<PostgresPlace> {
  const folder = join(dataDir, 'postgres')
  const programAt = (root: string, program: string) => join(root, 'bin', program)
  const own = async () => {}
  if (process.getuid?.() !== 0) {
    return { folder, own, run: (program, args) => ({ command: programAt(home, program), args }) }
  }
  const hasNamespaces =
    spawnSync('unshare', [...NAMESPACE, 'true'], { stdio: 'ignore' }).status === 0
  if (hasNamespaces) {
    const run: PostgresPlace['run'] = (program, args) => ({
      command: 'unshare',
      args: [...NAMESPACE, programAt(home, program), ...args],
    })
    return { folder, own, run }
  }
  return sheltered(dataDir, home)
}

async function sheltered(dataDir: string, home: string): Promise<PostgresPlace> {
  const name = createHash('sha256').update(dataDir).digest('hex').slice(0, 12)
  const shelter = join(SHELTER, name)
  const programs = join(shelter, 'programs')
  await mkdir(shelter, { recursive: true, mode: 0o755 })
  if (!existsSync(programs)) {
    await cp(home, `${programs}.new`, { recursive: true, verbatimSymlinks: true, force: true })
    // An interrupted copy must not be used.
    await rename(`${programs}.new`, programs)
  }
  const data = join(shelter, 'data')
  await mkdir(data, { recursive: true })
  await chown(data, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
  await chmod(data, 0o700)
  const identity = [`--reuid=${UNPRIVILEGED_ID}`, `--regid=${UNPRIVILEGED_ID}`, '--clear-groups']
  return {
    folder: join(data, 'postgres'),
    own: (path) => chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID),
    run: (program, args) => ({
      command: 'setpriv',
      args: [...identity, join(programs, 'bin', program), ...args],
    }),
  }
}
