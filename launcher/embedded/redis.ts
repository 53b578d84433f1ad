import { spawnSync } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { join, resolve } from 'node:path'

import { probeRedis } from '#shared/queue/redis-client.ts'

import { findFreePort, type PrivateChild, startChild, waitUntil } from './child.ts'

/** An embedded service that runs as long as this process. */
export interface EmbeddedService {
  readonly url: string
  /** The source of the program, for messages. */
  readonly how: string
  /** Resolves when it has ended for any reason. */
  readonly ended: Promise<unknown>
  stop(): Promise<void>
}

const START_TIMEOUT_MS = 20_000
const PULL_TIMEOUT_MS = 300_000
const IMAGE = 'valkey/valkey:8-bookworm'
// As `docker info` and `podman info` write it.
const ROOTLESS = /^\s*rootless(: true)?$/m

/** The sources of a Redis server, in order of preference. */
type Source = (
  port: number,
  folder: string,
) => { command: string; args: readonly string[]; how: string } | undefined

/**
 * Starts a private Redis that keeps its data below `dataDir`: from the PATH, else in Docker, else,
 * for root, installed by the system's package manager. Throws one sentence otherwise.
 */
export async function startRedis(
  dataDir: string,
  options: {
    readonly password: string
    readonly onProgress: (text: string) => void
    /** The previous port; any free one for a new installation. */
    readonly port?: number | undefined
  },
): Promise<EmbeddedService> {
  const folder = resolve(dataDir, 'redis')
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const port = options.port ?? (await findFreePort())
  const sources: readonly Source[] = [
    fromPath,
    fromDocker(options.onProgress),
    fromPackages(options.onProgress),
  ]
  for (const source of sources) {
    const found = source(port, folder)
    if (found === undefined) continue
    await writeFile(
      join(folder, 'redis.conf'),
      configFor(port, folder, options.password, found.how),
      { mode: 0o600 },
    )
    const child = await startChild({
      ...found,
      logFile: resolve(dataDir, 'logs/redis.log'),
      stopSignal: 'TERM',
    })
    const url = `redis://:${options.password}@127.0.0.1:${port}`
    await whenReady(url, child)
    return { url, how: found.how, ended: child.ended, stop: () => child.stop() }
  }
  throw new Error(
    'There is no Redis: set REDIS_URL, or install redis-server (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis), or start Docker.',
  )
}

const fromPath: Source = (_port, folder) => {
  const command = ['valkey-server', 'redis-server'].find(isOnPath)
  return command === undefined
    ? undefined
    : { command, args: [join(folder, 'redis.conf')], how: command }
}

/**
 * The entrypoint of the image runs the server as a user that may not enter the folder, so it is
 * replaced, and the server runs as this user. In rootless Docker root is this user.
 */
function fromDocker(onProgress: (text: string) => void): Source {
  return (port, folder) => {
    if (!isOnPath('docker')) return undefined
    const info = run('docker', ['info'])
    if (info.status !== 0) return undefined
    if (!succeeds('docker', ['image', 'inspect', IMAGE])) {
      onProgress(`pulling ${IMAGE} …`)
      if (run('docker', ['pull', IMAGE], PULL_TIMEOUT_MS).status !== 0) return undefined
    }
    const { uid, gid } = userInfo()
    return {
      command: 'docker',
      args: [
        ...['run', '--rm', '--init'],
        ...(ROOTLESS.test(info.stdout) ? [] : ['--user', `${uid}:${gid}`]),
        ...['-v', `${folder}:${folder}`, '-p', `127.0.0.1:${port}:${port}`],
        ...['--entrypoint', 'valkey-server', IMAGE, join(folder, 'redis.conf')],
      ],
      how: 'docker',
    }
  }
}

function fromPackages(onProgress: (text: string) => void): Source {
  return (port, folder) => {
    if (process.getuid?.() !== 0 || !isOnPath('apt-get')) return undefined
    onProgress('installing redis-server with apt-get …')
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
    spawnSync('apt-get', ['update', '-qq'], { env, stdio: 'ignore' })
    spawnSync('apt-get', ['install', '-y', '-qq', '--no-install-recommends', 'redis-server'], {
      env,
      stdio: 'ignore',
    })
    const found = fromPath(port, folder)
    return found && { ...found, how: `${found.how}, installed with apt-get` }
  }
}

function configFor(port: number, folder: string, password: string, how: string): string {
  return [
    `port ${port}`,
    // Inside a container the port is reached through its own interface.
    `bind ${how === 'docker' ? '0.0.0.0' : '127.0.0.1'}`,
    `dir "${folder}"`,
    `requirepass ${password}`,
    'appendonly yes',
    'appendfsync everysec',
    'save ""',
    'maxmemory-policy noeviction',
    'daemonize no',
    '',
  ].join('\n')
}

async function whenReady(url: string, child: PrivateChild): Promise<void> {
  await waitUntil(() => probeRedis(url), { timeoutMs: START_TIMEOUT_MS, child })
}

function isOnPath(command: string): boolean {
  return succeeds('sh', ['-c', `command -v ${command}`])
}

function succeeds(command: string, args: readonly string[]): boolean {
  return run(command, args).status === 0
}

function run(command: string, args: readonly string[], timeoutMs = 10_000) {
  return spawnSync(command, args, { encoding: 'utf8', timeout: timeoutMs })
}
