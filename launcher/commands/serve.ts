import { once } from 'node:events'

/** A process that serves until it is stopped. */
interface Serving {
  stop(): Promise<void>
  /** Ends the process without waiting for its threads; if absent, they are awaited. */
  leave?(status: number): never
}

// A stop that hangs must not keep the machine from shutting down.
const STOP_TIMEOUT_MS = 40_000
/** The longest wait for a start that is interrupted. */
const START_TIMEOUT_MS = 2000

/** Runs a tier until SIGTERM or SIGINT, then lets it drain; a second signal ends it at once. */
export async function serve(starting: Promise<Serving>): Promise<void> {
  let leave: (status: number) => void = process.exit
  const stopped = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]).then(() => {
    for (const name of ['SIGTERM', 'SIGINT']) process.once(name, () => leave(130))
    setTimeout(() => leave(1), STOP_TIMEOUT_MS).unref()
    // A process that is not ready waits for an unavailable service and has no work to finish.
    return setTimeout(() => leave(1), START_TIMEOUT_MS)
  })
  const serving = await starting
  leave = serving.leave ?? leave
  clearTimeout(await stopped)
  await serving.stop()
  // Only sockets and threads of libraries can remain at this point.
  leave(0)
}
