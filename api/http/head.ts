import { Readable } from 'node:stream'

import type { FastifyInstance } from 'fastify'

/**
 * Who asks only for the headers makes nobody read the body: left to itself, the framework would read
 * a file of gigabytes to its end, for an answer of a few bytes.
 */
export function leaveBodiesUnread(app: FastifyInstance): void {
  app.addHook('onSend', async (request, _reply, payload) => {
    if (request.method !== 'HEAD' || !(payload instanceof Readable)) return payload
    payload.destroy()
    return Readable.from([])
  })
}
