import type { Server } from 'node:http'
import { Server as Listener } from 'node:net'
import { setImmediate, setTimeout as sleep } from 'node:timers/promises'

import type { FastifyInstance } from 'fastify'

import type { Logger } from '#shared/logger.ts'

/** So long clients are told to leave, and still served, before the door closes. */
const NOTICE_MS = 1000
const LOOK_INTERVAL_MS = 50
/** A connection may ask for something right after its last answer, so it stays open a moment. */
const IDLE_MS = 500
const ACCEPTING_TURNS = 1000
const SHORT_TURN_MS = 0.3

/** While a process stops, every answer is the last one on its connection. */
export function registerFarewell(app: FastifyInstance, isDraining: () => boolean): void {
  app.addHook('onRequest', async (_request, reply) => {
    if (isDraining()) reply.raw.shouldKeepAlive = false
  })
}

/**
 * Lets clients go without failing a request of theirs: those with open connections are told with
 * their next answer, then new connections are refused, and what is asked for on the old ones is
 * answered all the same. What is still open after the time is cut.
 */
export async function drain(app: FastifyInstance, timeoutMs: number, log: Logger): Promise<void> {
  const { server } = app
  server.keepAliveTimeout = IDLE_MS
  server.keepAliveTimeoutBuffer = 0
  await whileConnected(server, NOTICE_MS)
  await emptyBacklog(server)
  // Unlike the server's own `close`, this cuts nobody who has just come and not asked yet.
  Listener.prototype.close.call(server)
  await whileConnected(server, IDLE_MS)
  const timer = setTimeout(() => {
    log.warn({ operation: 'api.drain' }, 'open requests were cut off after the drain time')
    server.closeAllConnections()
  }, timeoutMs)
  try {
    await app.close()
  } finally {
    clearTimeout(timer)
  }
}

/** Waits so long, or until nobody is connected. */
async function whileConnected(server: Server, timeMs: number): Promise<void> {
  const until = performance.now() + timeMs
  while (performance.now() < until && (await numConnections(server)) > 0) {
    await sleep(LOOK_INTERVAL_MS)
  }
}

/**
 * Takes in who is connected already, so that nobody waits when the port closes: the kernel resets
 * those. Meanwhile it is told to let nobody else wait; who comes now tries again a second later,
 * when the port is closed. Each turn of the event loop takes in one connection, so it is over with
 * the first short one that took none.
 */
async function emptyBacklog(server: Server): Promise<void> {
  // Node has no public way to listen anew. Where this one is gone, some more may be reset.
  const { _handle: port } = server as { _handle?: { listen?: (backlog: number) => number } }
  port?.listen?.(0)
  let numTaken = 0
  const count = (): void => {
    numTaken += 1
  }
  server.on('connection', count)
  for (let turn = 0; turn < ACCEPTING_TURNS; turn += 1) {
    const [from, before] = [performance.now(), numTaken]
    await setImmediate()
    if (numTaken === before && performance.now() - from < SHORT_TURN_MS) break
  }
  server.off('connection', count)
}

function numConnections(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.getConnections((error, count) => resolve(error === null ? count : 0))
  })
}
