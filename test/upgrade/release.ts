import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readFileSync, symlinkSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'

import { findFreePort, type PrivateChild, startChild, waitUntil } from '#launcher/embedded/child.ts'
import { apiEnv } from '#test/support/tiers.ts'

/** The tree of this checkout. */
export const ROOT = join(import.meta.dirname, '../..')

const READY_TIMEOUT_MS = 120_000
// Longer than a drain.
const STOP_GRACE_MS = 60_000

/** A tree whose processes can be started. */
export interface Release {
  /** For people. */
  readonly name: string
  readonly root: string
}

/** One process of either tier. */
export interface TierProcess {
  readonly release: Release
  readonly url: string
  /** Asks it to end and waits until it has. */
  stop(): Promise<void>
}

/** Shared by all processes of an installation. */
export interface Place {
  readonly databaseUrl: string
  readonly redisUrl: string
  readonly folder: string
}

/** The latest release's tag, if there is one. */
export function latestTag(): string | undefined {
  const found = spawnSync('git', ['describe', '--tags', '--abbrev=0'], { cwd: ROOT })
  return found.status === 0 ? found.stdout.toString().trim() : undefined
}

/** Copies the tree of a commit into a folder, with the dependencies that it names. */
export async function checkOut(ref: string, folder: string): Promise<Release> {
  const commit = spawnSync('git', ['rev-parse', '--verify', `${ref}^{commit}`], { cwd: ROOT })
  if (commit.status !== 0) throw new Error(`There is no commit or tag "${ref}" in this checkout.`)
  const root = join(folder, 'release')
  await mkdir(root, { recursive: true })
  const archive = execFileSync(
    'git',
    ['archive', '--format=tar', commit.stdout.toString().trim()],
    {
      cwd: ROOT,
      maxBuffer: 2 ** 30,
    },
  )
  execFileSync('tar', ['x', '-C', root], { input: archive })
  const lockOf = (tree: string): string => readFileSync(join(tree, 'package-lock.json'), 'utf8')
  if (lockOf(root) === lockOf(ROOT))
    symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'))
  else execFileSync('npm', ['ci', '--ignore-scripts'], { cwd: root, stdio: ['ignore', 2, 2] })
  return { name: ref, root }
}

/** Starts an API process of a release; resolves when it is ready. */
export async function startApi(release: Release, place: Place): Promise<TierProcess> {
  const [port, metricsPort] = [await findFreePort(), await findFreePort()]
  return start(release, place, {
    name: 'api',
    port,
    env: {
      ...apiEnv(place.databaseUrl, port),
      OTEL_EXPORTER_PROMETHEUS_PORT: String(metricsPort),
      AUTH_MAILER_AUTOCONFIRM: 'true',
    },
  })
}

/** Starts a worker of a release; resolves when its models are loaded. */
export async function startWorker(release: Release, place: Place): Promise<TierProcess> {
  const port = await findFreePort()
  const env = {
    MILLRACE_WORKER_METRICS_PORT: String(port),
    MILLRACE_WORKER_MODELS: 'tiny-chat,tiny-embed',
    MILLRACE_INTRA_OP_THREADS: '1',
  }
  return start(release, place, { name: 'worker', port, env })
}

async function start(
  release: Release,
  { redisUrl, folder }: Place,
  process: { name: 'api' | 'worker'; port: number; env: Readonly<Record<string, string>> },
): Promise<TierProcess> {
  const { name, port, env } = process
  const script = join(release.root, 'launcher/cli.ts')
  if (!existsSync(script)) throw new Error(`${release.name} has no launcher/cli.ts`)
  const child: PrivateChild = await startChild({
    command: globalThis.process.execPath,
    args: [script, name],
    env: {
      MILLRACE_DATA_DIR: folder,
      MILLRACE_REDIS_PREFIX: 'upgrade',
      REDIS_URL: redisUrl,
      LOG_LEVEL: 'warn',
      ...env,
    },
    logFile: join(folder, `logs/${name}-${port}.log`),
    stopSignal: 'TERM',
  })
  const url = `http://127.0.0.1:${port}`
  const isReady = async (): Promise<void> => {
    const answer = await fetch(`${url}/readyz`)
    await answer.body?.cancel()
    if (!answer.ok) throw new Error(`${name} of ${release.name} is not ready: ${answer.status}`)
  }
  await waitUntil(isReady, { timeoutMs: READY_TIMEOUT_MS, child })
  return { release, url, stop: () => child.stop(STOP_GRACE_MS) }
}
