import { findFreePort } from '#launcher/embedded/child.ts'

/** Another process, looked at from inside. */
export interface WatchedProcess {
  /** What the process has to be started with. */
  readonly env: Readonly<Record<string, string>>
  /** What it holds once everything that could be collected was. */
  collectedMib(): Promise<number>
  /** The longest that its event loop was held up since this was asked last, or since the start. */
  loopDelayMs(): Promise<number>
}

// The measure is left in the process that it measures.
const LOOP_DELAY = `(() => {
  const { monitorEventLoopDelay } = process.getBuiltinModule('node:perf_hooks')
  const delay = (globalThis.loopDelay ??= monitorEventLoopDelay({ resolution: 5 }))
  const longest = delay.count > 0 ? delay.max / 1e6 : 0
  delay.reset()
  delay.enable()
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
