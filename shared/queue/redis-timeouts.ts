import type { Redis } from 'ioredis'

import { onConnection, onServer } from './redis-client.ts'

// After a pause of this process, such as a collection of garbage or a lack of processor time,
// timers run before sockets are read. A single timer would drop an answer that has arrived.

/** The timers of one time limit, in a row: a pause of any length counts as one. */
const TIMERS = 4
/** A silent connection is read for this long before it is closed. */
const LAST_READ_MS = 500

/** Rejects commands that Redis does not answer in time. */
export function limitCommands(redis: Redis, timeoutMs: number): void {
  onServer(redis, (server) => {
    const send = server.sendCommand.bind(server)
    server.sendCommand = (command, stream) => {
      limit(command, timeoutMs)
      return send(command, stream)
    }
  })
}

function limit(command: Parameters<Redis['sendCommand']>[0], timeoutMs: number): void {
  let count = 0
  const look = (): void => {
    count += 1
    if (count === TIMERS) command.reject(new Error('Command timed out'))
    else timer = setTimeout(look, timeoutMs / TIMERS)
  }
  let timer = setTimeout(look, timeoutMs / TIMERS)
  const stop = (): void => clearTimeout(timer)
  command.promise.then(stop, stop)
}

/** Reads a connection once more before the client closes it for its silence. */
export function readBeforeClosing(redis: Redis): void {
  onConnection(redis, ({ stream }) => {
    const destroy = stream.destroy.bind(stream)
    stream.destroy = (error?: Error) => {
      // As ioredis words the end of `socketTimeout`.
      if (!/^Socket timeout/.test(error?.message ?? '')) return destroy(error)
      const timer = setTimeout(destroy, LAST_READ_MS, error)
      const stop = (): void => clearTimeout(timer)
      stream.once('data', stop).once('close', stop)
      return stream
    }
  })
}
