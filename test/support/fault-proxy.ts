import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** A TCP proxy with configurable faults; a setting applies to every connection from then on. */
export interface FaultProxy {
  readonly port: number
  /** Sends new connections elsewhere; open ones are cut. */
  retarget(port: number): void
  /** Cuts every connection and, until `mend`, every new one. */
  cut(): void
  /** Keeps connections open and passes nothing on: the far side seems to hang. */
  freeze(): void
  /** Silences the open connections without closing them; new ones work. */
  abandon(): void
  /** Holds everything back until `mend`, and passes it on then. */
  hold(): void
  /** Delays every chunk by this time. */
  delay(ms: number): void
  /** Passes only so many bytes of each new connection to the far side, then cuts it. */
  truncateAfter(bytes: number): void
  mend(): void
  close(): Promise<void>
}

type Fault =
  | { readonly kind: 'none' | 'cut' | 'freeze' }
  | { readonly kind: 'hold'; readonly over: Promise<void>; readonly release: () => void }
  | { readonly kind: 'delay'; readonly ms: number }
  | { readonly kind: 'truncate'; readonly bytes: number }

const FROZEN: Fault = { kind: 'freeze' }

/** Opens a proxy on a free port of the loopback interface in front of another. */
export async function openFaultProxy(targetPort: number): Promise<FaultProxy> {
  let target = targetPort
  let fault: Fault = { kind: 'none' }
  let generation = 0
  const sockets = new Set<Socket>()
  const server = createServer((near) => {
    if (fault.kind === 'cut') {
      near.destroy()
      return
    }
    const far = connect(target, '127.0.0.1')
    const born = generation
    const isDead = (): boolean => born < generation
    const state = { sent: 0, fault: () => (isDead() ? FROZEN : fault) }
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.once('close', () => {
        sockets.delete(socket)
        if (isDead()) return
        const other = socket === near ? far : near
        // Delayed bytes arrive before the end of the stream does.
        setTimeout(() => other.destroy(), fault.kind === 'delay' ? fault.ms + 50 : 0)
      })
    }
    near.on('data', (bytes) => void pass(bytes, near, far, state, true))
    far.on('data', (bytes) => void pass(bytes, far, near, state, false))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const cutAll = (): void => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: (server.address() as AddressInfo).port,
    retarget(port) {
      target = port
      cutAll()
    },
    cut() {
      fault = { kind: 'cut' }
      cutAll()
    },
    freeze() {
      fault = { kind: 'freeze' }
    },
    abandon() {
      generation += 1
    },
    hold() {
      const { promise: over, resolve: release } = Promise.withResolvers<void>()
      fault = { kind: 'hold', over, release }
    },
    delay(ms) {
      fault = { kind: 'delay', ms }
    },
    truncateAfter(bytes) {
      fault = { kind: 'truncate', bytes }
    },
    mend() {
      // Connections that lost bytes meanwhile are of no use any more.
      if (fault.kind === 'freeze') cutAll()
      if (fault.kind === 'hold') fault.release()
      fault = { kind: 'none' }
    },
    async close() {
      cutAll()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function pass(
  bytes: Buffer,
  from: Socket,
  to: Socket,
  state: { sent: number; fault(): Fault },
  isForward: boolean,
): Promise<void> {
  const fault = state.fault()
  if (fault.kind === 'freeze') return
  if (fault.kind === 'hold') await fault.over
  if (fault.kind === 'delay') await new Promise((resolve) => setTimeout(resolve, fault.ms))
  if (to.destroyed) return
  if (fault.kind === 'truncate' && isForward) {
    const left = fault.bytes - state.sent
    state.sent += bytes.length
    if (bytes.length > left) {
      if (left > 0) to.write(bytes.subarray(0, left))
      to.end()
      from.destroy()
      return
    }
  }
  if (to.write(bytes)) return
  from.pause()
  to.once('drain', () => from.resume())
}
