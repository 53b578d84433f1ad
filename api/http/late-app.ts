import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

/**
 * Creates a handler that passes requests to a separate application, built on the first request:
 * processes that never serve it do not load its modules.
 */
export function lateApp(
  build: () => Promise<FastifyInstance>,
): (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply> {
  let building: Promise<FastifyInstance> | undefined
  return async (request, reply) => {
    building ??= build().catch((error: unknown) => {
      building = undefined
      throw error
    })
    return passTo(await building, request, reply)
  }
}

async function passTo(
  inner: FastifyInstance,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { url, headers } = request
  const method = request.method as 'GET' | 'HEAD'
  const answer = await inner.inject({ method, url, headers })
  if (answer.statusCode === 404) {
    const policy = 'content-security-policy'
    reply.header(policy, answer.headers[policy]).callNotFound()
    return reply
  }
  // The outer application sets its own Date and Connection.
  const { date: _date, connection: _connection, ...kept } = answer.headers
  return reply.code(answer.statusCode).headers(kept).send(answer.rawPayload)
}
