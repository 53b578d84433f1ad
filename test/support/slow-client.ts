import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

/** A client that sends byte by byte, or does not read, and never closes its side. */
export interface SlowClient {
  /** The bytes received so far. */
  received(): string
  /** Resolves when the server has ended the connection altogether. */
  readonly cut: Promise<unknown>
  close(): void
}

const BYTE_INTERVAL_MS = 20

async function open(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

/** Resolves when the connection is closed, with or without an error. */
function closeOf(socket: Socket): Promise<unknown> {
  return new Promise((resolve) => socket.once('close', resolve))
}

/** Sends a beginning, then further bytes one at a time for as long as the connection is there. */
export async function openSlowWriter(
  port: number,
  beginning: string,
  nextByte = 'a',
): Promise<SlowClient> {
  const socket = await open(port)
  let received = ''
  socket.setEncoding('latin1').on('data', (chunk) => (received += chunk))
  socket.write(beginning)
  const timer = setInterval(() => socket.write(nextByte), BYTE_INTERVAL_MS)
  // Writing to a connection that the server has closed breaks it.
  const cut = closeOf(socket).finally(() => clearInterval(timer))
  return { received: () => received, cut, close: () => socket.destroy() }
}

/** Sends a request and reads `bytesPerRead` of its answer at a time. */
export async function openSlowReader(
  port: number,
  request: string,
  bytesPerRead = 0,
): Promise<SlowClient> {
  const socket = await open(port)
  let received = ''
  socket.pause()
  socket.write(request)
  const timer = setInterval(() => {
    if (bytesPerRead > 0) received += String(socket.read(bytesPerRead) ?? '')
    // A connection that was reset breaks at a write; a paused one does not notice otherwise.
    socket.write('\r\n')
  }, BYTE_INTERVAL_MS)
  const cut = closeOf(socket).finally(() => clearInterval(timer))
  return { received: () => received, cut, close: () => socket.destroy() }
}
