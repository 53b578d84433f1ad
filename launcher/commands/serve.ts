import { once } from 'node:events'

/** Something that serves until it is told to stop. */
interface Serving {
  stop(): Promise<void>
  /** Ends the process without waiting for its threads; without it they are waited for. */
  leave?(status: number): never
}

// A stop that hangs must not keep the machine from shutting down.
const STOP_TIMEOUT_MS = 40_000
/** Who asks for the end of what has not started yet is kept no longer than this. */
const START_TIMEOUT_MS = 2000

/** Runs a tier until SIGTERM or SIGINT, then lets it drain; a second signal ends it at once. */
export async function serve(starting: Promise<Serving>): Promise<void> {
  let leave: (status: number) => void = process.exit
  const stopped = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]).then(() => {
    for (const name of ['SIGTERM', 'SIGINT']) process.once(name, () => leave(130))
    setTimeout(() => leave(1), STOP_TIMEOUT_MS).unref()
    // What is not there by then waits for something that is away: it has nothing to finish.
    return setTimeout(() => leave(1), START_TIMEOUT_MS)
  })
  const serving = await starting
  leave = serving.leave ?? leave
  clearTimeout(await stopped)
  await serving.stop()
  // Sockets and threads of libraries may linger; everything that matters is closed.
  leave(0)
}
