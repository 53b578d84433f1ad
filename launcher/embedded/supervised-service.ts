import { setTimeout as sleep } from 'node:timers/promises'

import type { EmbeddedService } from './redis.ts'

const RESTART_DELAY_MS_MIN = 250
const RESTART_DELAY_MS_MAX = 10_000

/**
 * Starts an embedded service and restarts it on the same address and data whenever it ends
 * unexpectedly. `start` receives the port from the second start on.
 */
export async function keepService(
  name: string,
  start: (port?: number) => Promise<EmbeddedService>,
  onNote: (text: string) => void,
): Promise<EmbeddedService> {
  let service = await start()
  const { url, how } = service
  const port = Number(new URL(url).port)
  let isStopping = false
  const ended = watch()

  async function watch(): Promise<void> {
    for (;;) {
      await service.ended
      if (isStopping) return
      onNote(`${name} ended; it starts again`)
      await startAgain()
    }
  }

  async function startAgain(): Promise<void> {
    for (let delayMs = RESTART_DELAY_MS_MIN; !isStopping; ) {
      await sleep(delayMs)
      delayMs = Math.min(delayMs * 2, RESTART_DELAY_MS_MAX)
      if (isStopping) return
      try {
        service = await start(port)
        if (isStopping) await service.stop()
        return
      } catch (error) {
        onNote(`${name} could not be started: ${(error as Error).message}`)
      }
    }
  }

  return {
    url,
    how,
    ended,
    async stop() {
      isStopping = true
      await service.stop()
      await ended
    },
  }
}
