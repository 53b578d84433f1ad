import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * A client that sends more requests than this without waiting is disconnected. It has no answer to
 * them, and may send them again.
 */
const WAITING_MAX = 256

type Exchange = readonly [IncomingMessage, ServerResponse]

/**
 * Creates a listener that handles the requests of a connection one after another. Node parses all
 * requests that a client pipelines and keeps each answer until those before it are sent: one
 * connection that reads nothing would have thousands of requests in flight.
 */
export function handleInOrder(listener: RequestListener): RequestListener {
  /** The requests of each connection behind the one in flight. */
  const waiting = new WeakMap<Socket, Exchange[]>()
  const handle = ([request, response]: Exchange): void => {
    const { socket } = request
    response.once('close', () => {
      const next = waiting.get(socket)?.shift()
      if (next === undefined || socket.destroyed) waiting.delete(socket)
      else handle(next)
    })
    listener(request, response)
  }
  return (request, response) => {
    const others = waiting.get(request.socket)
    if (others === undefined) {
      waiting.set(request.socket, [])
      handle([request, response])
    } else if (others.length < WAITING_MAX) others.push([request, response])
    else request.socket.destroy()
  }
}
