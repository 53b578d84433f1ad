import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { type PrivateChild, startChild } from './embedded/child.ts'

/** A tier in its own process. */
interface SupervisedTier {
  /** Resolves with the path of its log when it ends before it is kept running. */
  readonly failedStart: Promise<string>
  /** From now on it is restarted whenever it ends. */
  keepRunning(): void
  stop(graceMs: number): Promise<void>
}

const RESTART_DELAY_MS_MIN = 250
const RESTART_DELAY_MS_MAX = 10_000
// A process that ran this long had started correctly; the delay is reset.
const STABLE_AFTER_MS = 60_000
const NOTABLE_LEVELS = ['warn', 'error', 'fatal']

/**
 * Runs `millrace <name>` until it is stopped. Its warnings are shown, its whole log goes to a file.
 */
export async function superviseTier(options: {
  readonly name: 'api' | 'worker'
  readonly env: Readonly<Record<string, string | undefined>>
  readonly logFolder: string
  readonly onNote: (text: string) => void
}): Promise<SupervisedTier> {
  const { name, onNote } = options
  let isStopping = false
  let isKept = false
  const logFile = join(options.logFolder, `${name}.log`)
  const failedStart = Promise.withResolvers<string>()
  let child: PrivateChild = await start()
  const loop = watch()

  function start(): Promise<PrivateChild> {
    return startChild({
      command: process.execPath,
      args: [join(import.meta.dirname, 'cli.ts'), name],
      env: options.env,
      logFile,
      stopSignal: 'TERM',
      onOutput: (text) => {
        for (const line of notableLines(text)) onNote(`${name}: ${line}`)
      },
    })
  }

  async function watch(): Promise<void> {
    let delayMs = RESTART_DELAY_MS_MIN
    while (!isStopping) {
      const startedAt = performance.now()
      const code = await child.ended
      if (isStopping) return
      // A process that cannot start at all is not restarted.
      if (!isKept) return failedStart.resolve(logFile)
      delayMs = performance.now() - startedAt > STABLE_AFTER_MS ? RESTART_DELAY_MS_MIN : delayMs
      onNote(`${name} ended with ${code ?? 'a signal'}; it starts again in ${delayMs / 1000} s`)
      await sleep(delayMs)
      delayMs = Math.min(delayMs * 2, RESTART_DELAY_MS_MAX)
      if (!isStopping) child = await start()
    }
  }

  return {
    failedStart: failedStart.promise,
    keepRunning() {
      isKept = true
    },
    async stop(graceMs) {
      isStopping = true
      await child.stop(graceMs)
      await loop
    },
  }
}

/** Warnings and errors of JSON log lines, shortened; lines that are not JSON as they are. */
function notableLines(text: string): string[] {
  return text.split('\n').flatMap((line) => {
    // The other lines are the shell's own messages about ended programs.
    if (['', 'Terminated', 'Killed'].includes(line.trim())) return []
    try {
      const entry = JSON.parse(line) as {
        level?: string
        msg?: string
        err?: { message?: string }
        reason?: string
      }
      if (!NOTABLE_LEVELS.includes(entry.level ?? '')) return []
      const why = entry.err?.message ?? entry.reason
      return [`${entry.level}: ${entry.msg ?? ''}${why === undefined ? '' : ` (${why})`}`]
    } catch {
      // Output from before the logger exists, such as a configuration error.
      return [line]
    }
  })
}
