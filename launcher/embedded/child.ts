import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import { createServer } from 'node:net'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { openChildLog } from './child-log.ts'

/** A child process that ends with this process. */
export interface PrivateChild {
  /** Resolves with the exit code when it has ended. */
  readonly ended: Promise<number | null>
  isRunning(): boolean
  /** Sends the stop signal, and SIGKILL after the grace period. */
  stop(graceMs?: number): Promise<void>
}

/** The command of a child process and its stop signal. */
interface ChildOptions {
  readonly command: string
  readonly args: readonly string[]
  readonly env?: Readonly<Record<string, string | undefined>>
  readonly logFile: string
  /** The signal that stops this program. */
  readonly stopSignal: 'INT' | 'TERM'
  /** Receives the output as well as the log file. */
  readonly onOutput?: (text: string) => void
}

// Runs "$@" and sends it the signal $1 as soon as the pipe on standard input closes. Children
// therefore end with their parent, however it ends, at the latest 45 seconds later.
const GUARD = `
signal=$1; shift
exec 3<&0
"$@" </dev/null 3<&- & child=$!
(
  cat <&3 >/dev/null; kill -s "$signal" $child 2>/dev/null
  seconds=0
  while [ $seconds -lt 45 ] && kill -0 $child 2>/dev/null; do sleep 1; seconds=$((seconds + 1)); done
  kill -s KILL $child 2>/dev/null
) & watcher=$!
wait $child; code=$?
kill $watcher 2>/dev/null
exit $code`

const GRACE_MS = 10_000

/**
 * Starts a program that ends with this process, in its own session, so that Ctrl-C reaches only
 * this process.
 */
export async function startChild(options: ChildOptions): Promise<PrivateChild> {
  await mkdir(dirname(options.logFile), { recursive: true })
  const log = openChildLog(options.logFile)
  const child = spawn(
    'sh',
    ['-c', GUARD, 'guard', options.stopSignal, options.command, ...options.args],
    {
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, ...options.env },
    },
  )
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      log.write(chunk)
      options.onOutput?.(chunk.toString())
    })
  }
  // The pipe breaks when the guard ends first; `ended` reports that.
  child.stdin.on('error', () => {})
  const ended = once(child, 'exit').then(
    ([code]) => code as number | null,
    () => null,
  )
  void ended.then(() => log.end())
  const isRunning = () => child.exitCode === null && child.signalCode === null
  return { ended, isRunning, stop: (graceMs = GRACE_MS) => stop(child, ended, graceMs) }
}

async function stop(child: ChildProcess, ended: Promise<unknown>, graceMs: number): Promise<void> {
  child.stdin?.end()
  const timer = new AbortController()
  const late = sleep(graceMs, 'late', { signal: timer.signal }).catch(() => 'early')
  const outcome = await Promise.race([ended, late])
  timer.abort()
  // The guard leads its own group, so this reaches the program as well.
  if (outcome === 'late' && child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
  await ended
}

// Below the ephemeral range: the kernel gives none of these ports to an outgoing connection.
const FIRST_PORT = 20_000
const PORTS = 12_000
const TRIES_MAX = 50

/**
 * A free TCP port of the loopback interface: `preferred` if it is free. Another one is not found a
 * second time, in any process, until this one ends: a child may listen late, or again.
 */
export async function findFreePort(preferred = 0): Promise<number> {
  if (preferred !== 0 && (await isPortFree(preferred))) return preferred
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const port = FIRST_PORT + Math.floor(Math.random() * PORTS)
    if ((await isPortFree(port)) && (await claimPortNumber(port)) !== undefined) return port
  }
  throw new Error('no TCP port is free')
}

async function isPortFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return false
    throw error
  } finally {
    server.close()
  }
}

/**
 * Repeats an attempt until it succeeds. Throws its last error after the time, or when the child
 * ends.
 */
export async function waitUntil(
  attempt: () => Promise<unknown>,
  options: { readonly timeoutMs: number; readonly child?: PrivateChild },
): Promise<void> {
  // A monotonic clock: machines set the time of day shortly after their start.
  const deadline = performance.now() + options.timeoutMs
  for (;;) {
    try {
      await attempt()
      return
    } catch (error) {
      const hasEnded = options.child !== undefined && !options.child.isRunning()
      if (hasEnded || performance.now() > deadline) throw error
    }
    await sleep(50)
  }
}

/**
 * Keeps other launchers from choosing the same port between the check that it is free and the start
 * of its server. Resolves with a function that releases it, or with undefined when another launcher
 * holds it. The lock is an abstract socket name in the kernel: it ends with this process, and is
 * visible in the same network namespace as the port. Where the system has no such names, there is
 * no lock.
 */
export async function claimPortNumber(port: number): Promise<(() => Promise<void>) | undefined> {
  const claim = createServer((peer) => peer.destroy())
  try {
    claim.listen(`\0millrace-port-${port}`)
    await once(claim, 'listening')
  } catch (error) {
    const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE'
    return isTaken ? undefined : async () => {}
  }
  claim.unref()
  return async () => {
    await new Promise((resolve) => claim.close(resolve))
  }
}
