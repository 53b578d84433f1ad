import { findFreePort } from '#launcher/embedded/child.ts'

const RESOLUTION_MS = 5
/** Milliseconds that the work below takes on the core on which bounds of turns were set. */
const WORK_MS = 16
const TIMES = 9
const WORK = JSON.stringify(Array.from({ length: 90_000 }, (_, at) => ({ a: at })))

/** Another process, looked at from inside. */
export interface WatchedProcess {
  /** The environment of the process. */
  readonly env: Readonly<Record<string, string>>
  /** Its memory after everything collectable was collected. */
  collectedMib(): Promise<number>
  /**
   * The most processor time of its main thread in one turn of its event loop, since this was asked
   * last. Other processes of the machine do not lengthen it.
   */
  loopDelayMs(): Promise<number>
}

// The measure is left in the process that it measures. Linux says how long the main thread had a
// core: without the time in which it waited for one, or for the threads that collect garbage with
// it, which wait too. Elsewhere the time of the loop outside of its waits is the next best.
const LOOP_DELAY = `(() => {
  const { readFileSync } = process.getBuiltinModule('node:fs')
  const busyMs = () => {
    try {
      return Number(readFileSync('/proc/self/schedstat', 'latin1').split(' ')[0]) / 1e6
    } catch {
      return performance.eventLoopUtilization().active
    }
  }
  const start = () => {
    const watch = { longest: 0 }
    let last = busyMs()
    setInterval(() => {
      const next = busyMs()
      watch.longest = Math.max(watch.longest, next - last)
      last = next
    }, ${RESOLUTION_MS}).unref()
    return watch
  }
  const watch = (globalThis.loopDelay ??= start())
  const { longest } = watch
  watch.longest = 0
  return longest
})()`

/** Prepares to look at a process that is started with `env`, and at none besides. */
export async function watchProcess(): Promise<WatchedProcess> {
  const address = `127.0.0.1:${await findFreePort()}`
  return {
    env: { NODE_OPTIONS: `--inspect=${address}` },
    collectedMib: () =>
      attached(address, async (socket) => {
        await ask(socket, 1, 'HeapProfiler.collectGarbage')
        const usage = await ask(socket, 2, 'Runtime.getHeapUsage')
        return Number(usage.usedSize) / 2 ** 20
      }),
    loopDelayMs: () =>
      attached(address, async (socket) => {
        const { result } = await ask(socket, 1, 'Runtime.evaluate', { expression: LOOP_DELAY })
        return Number((result as { value?: unknown }).value)
      }),
  }
}

async function attached<T>(address: string, act: (socket: WebSocket) => Promise<T>): Promise<T> {
  const list = (await (await fetch(`http://${address}/json`)).json()) as Target[]
  const socket = new WebSocket(list[0]?.webSocketDebuggerUrl ?? '')
  await new Promise((resolve) => socket.addEventListener('open', resolve))
  try {
    return await act(socket)
  } finally {
    socket.close()
  }
}

interface Target {
  readonly webSocketDebuggerUrl: string
}

function ask(
  socket: WebSocket,
  id: number,
  method: string,
  params: object = {},
): Promise<Record<string, unknown>> {
  return new Promise((resolve) => {
    const listen = ({ data }: MessageEvent): void => {
      const answer = JSON.parse(String(data)) as { id?: number; result?: Record<string, unknown> }
      if (answer.id !== id) return
      socket.removeEventListener('message', listen)
      resolve(answer.result ?? {})
    }
    socket.addEventListener('message', listen)
    socket.send(JSON.stringify({ id, method, params }))
  })
}

/**
 * How much longer than there this core takes now for the same work; at least 1. Shared machines
 * differ by a factor of two from hour to hour. The least of several times: another process that has
 * the core does not count.
 */
export function slowness(): number {
  const times = Array.from({ length: TIMES }, () => {
    const from = performance.now()
    JSON.parse(WORK)
    return performance.now() - from
  })
  return Math.max(1, Math.min(...times) / WORK_MS)
}
