import { findFreePort } from '#launcher/embedded/child.ts'

const RESOLUTION_MS = 5

/** Another process, looked at from inside. */
export interface WatchedProcess {
  /** What the process has to be started with. */
  readonly env: Readonly<Record<string, string>>
  /** What it holds once everything that could be collected was. */
  collectedMib(): Promise<number>
  /**
   * The longest that its event loop was held up since this was asked last, without the time in
   * which other processes had its core.
   */
  loopDelayMs(): Promise<number>
}

// The measure is left in the process that it measures. What other processes of the machine take is
// not counted: Linux says how long the main thread was ready and did not run.
const LOOP_DELAY = `(() => {
  const { readFileSync } = process.getBuiltinModule('node:fs')
  const readyMs = () => {
    try {
      return Number(readFileSync('/proc/self/schedstat', 'latin1').split(' ')[1]) / 1e6
    } catch {
      return 0
    }
  }
  const start = () => {
    const watch = { longest: 0 }
    let last = { at: performance.now(), ready: readyMs() }
    setInterval(() => {
      const next = { at: performance.now(), ready: readyMs() }
      const delay = next.at - last.at - (next.ready - last.ready) - ${RESOLUTION_MS}
      watch.longest = Math.max(watch.longest, delay)
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
