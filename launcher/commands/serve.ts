import { once } from 'node:events'

/** Something that serves until it is told to stop. */
interface Serving {
  stop(): Promise<void>
}

// A stop that hangs must not keep the machine from shutting down.
const STOP_TIMEOUT_MS = 40_000

/** Runs a tier until SIGTERM or SIGINT, then lets it drain; a second signal ends it at once. */
export async function serve(starting: Promise<Serving>): Promise<void> {
  const stopped = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')])
  const serving = await starting
  await stopped
  for (const name of ['SIGTERM', 'SIGINT']) process.once(name, () => process.exit(130))
  setTimeout(() => process.exit(1), STOP_TIMEOUT_MS).unref()
  await serving.stop()
  // Sockets and threads of libraries may linger; everything that matters is closed.
  process.exit(0)
}
