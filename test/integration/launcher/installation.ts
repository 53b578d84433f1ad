import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'

import { findFreePort } from '#launcher/embedded/child.ts'

const CLI = join(import.meta.dirname, '../../../launcher/cli.ts')
const READY_TIMEOUT_MS = 90_000
const GONE_TIMEOUT_MS = 30_000

/** A `millrace up` in a process of its own. */
export interface Installation {
  readonly child: ChildProcess
  readonly port: number
  /** Everything that it printed. */
  output(): string
  /** Asks it to end in the given way, and resolves with its exit code when it has. */
  end(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL'): Promise<number | null>
}

/** Environment of a command on a data directory, free of what the test run itself has set. */
export function envOf(dataDir: string, more: Record<string, string> = {}): NodeJS.ProcessEnv {
  const { PATH, HOME, NODE_COMPILE_CACHE } = process.env
  return { PATH, HOME, NODE_COMPILE_CACHE, MILLRACE_DATA_DIR: dataDir, ...more }
}

/** Starts everything and waits until the address is printed. */
export async function startInstallation(
  dataDir: string,
  more: Record<string, string> = {},
): Promise<Installation> {
  for (let triesLeft = 2; ; triesLeft -= 1) {
    try {
      return await tryInstallation(dataDir, more)
    } catch (error) {
      // A port that was free a moment ago may be another's by now.
      if (triesLeft === 0 || !/Port \d+ is taken|EADDRINUSE/.test((error as Error).message))
        throw error
    }
  }
}

async function tryInstallation(
  dataDir: string,
  more: Record<string, string>,
): Promise<Installation> {
  const port = await findFreePort()
  const child = spawn(process.execPath, [CLI, 'up'], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: envOf(dataDir, { PORT: String(port), ...more }),
  })
  let printed = ''
  const isReady = Promise.withResolvers<void>()
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      printed += chunk.toString()
      if (printed.includes('Ctrl-C stops everything')) isReady.resolve()
    })
  }
  const ended = once(child, 'exit').then(([code]) => code as number | null)
  void ended.then(() => isReady.reject(new Error(`it ended before it was ready: ${printed}`)))
  const timer = setTimeout(
    () => isReady.reject(new Error(`it is not ready: ${printed}`)),
    READY_TIMEOUT_MS,
  )
  try {
    await isReady.promise
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  } finally {
    clearTimeout(timer)
  }
  return {
    child,
    port,
    output: () => printed,
    end(signal) {
      child.kill(signal)
      return ended
    },
  }
}

/** Runs a command of the launcher to its end, while other tests go on. */
export async function runBeside(args: readonly string[], env: NodeJS.ProcessEnv) {
  const child = spawn(process.execPath, [CLI, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ])
  return { status: status as number | null, stdout, stderr }
}

/** Runs a command of the launcher to its end. */
export function runCommand(args: readonly string[], env: NodeJS.ProcessEnv) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [CLI, ...args], {
    env,
    encoding: 'utf8',
    timeout: 60_000,
  })
  return { status, stdout, stderr }
}

/** Waits until no process names or uses the data directory any more; resolves with what is left. */
export async function leftoversOf(dataDir: string): Promise<readonly string[]> {
  const deadline = Date.now() + GONE_TIMEOUT_MS
  for (;;) {
    const left = processesOf(dataDir)
    if (left.length === 0 || Date.now() > deadline) return left
    await sleep(200)
  }
}

/**
 * Command lines of the processes that have the data directory in arguments or environment, or work
 * in it.
 */
export function processesOf(dataDir: string): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((pid) => {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
        const env = readFileSync(`/proc/${pid}/environ`, 'utf8')
        // Servers rewrite their title, and with it what they were started with; their folder stays.
        const cwd = readlinkSync(`/proc/${pid}/cwd`)
        const isOurs = [line, env, cwd].some((text) => text.includes(dataDir))
        return isOurs ? [`${pid} ${line}`] : []
      } catch {
        // It has ended since the folder was listed.
        return []
      }
    })
}
