import { Readable } from 'node:stream'

import type { FastifyInstance } from 'fastify'

/**
 * A HEAD request must not read the body: Fastify would read a file of gigabytes to its end for an
 * answer without a body.
 */
export function leaveBodiesUnread(app: FastifyInstance): void {
  app.addHook('onSend', async (request, _reply, payload) => {
    if (request.method !== 'HEAD' || !(payload instanceof Readable)) return payload
    payload.destroy()
    return Readable.from([])
  })
}
