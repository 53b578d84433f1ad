import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

/**
 * A handler that passes reads to an application of their own. It is built with the first request,
 * so that its modules are loaded only where they are used.
 */
export function lateApp(
  build: () => Promise<FastifyInstance>,
): (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply> {
  let building: Promise<FastifyInstance> | undefined
  return async (request, reply) => {
    building ??= build()
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
  // The outer answer has its own date and connection.
  const { date: _date, connection: _connection, ...kept } = answer.headers
  return reply.code(answer.statusCode).headers(kept).send(answer.rawPayload)
}
