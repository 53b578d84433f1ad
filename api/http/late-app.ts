import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { pathOf } from './request.ts'
import { isKnown } from './stored-bytes.ts'

type Answer = Awaited<ReturnType<FastifyInstance['inject']>>

/**
 * Creates a handler that passes requests to a separate application, built on the first request:
 * processes that never serve it do not load its modules. The answers of a constant application are
 * kept for each path: all clients share their bytes, however many read slowly.
 */
export function lateApp(
  build: () => Promise<FastifyInstance>,
  { isConstant = false } = {},
): (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply> {
  let building: Promise<FastifyInstance> | undefined
  const known = new Map<string, Promise<Answer>>()
  const read = async (inner: FastifyInstance, path: string): Promise<Answer> => {
    const asked = known.get(path) ?? inner.inject({ method: 'GET', url: path })
    known.set(path, asked)
    const isKept = await asked.then(
      ({ statusCode }) => statusCode === 200,
      () => false,
    )
    if (!isKept) known.delete(path)
    return asked
  }
  return async (request, reply) => {
    building ??= build().catch((error: unknown) => {
      building = undefined
      throw error
    })
    const inner = await building
    if (!isConstant) return pass(await askFor(inner, request), reply)
    const answer = await read(inner, pathOf(request.url))
    const { etag } = answer.headers
    const isUnchanged = typeof etag === 'string' && isKnown(request.headers['if-none-match'], etag)
    return isUnchanged ? reply.code(304).header('etag', etag).send() : pass(answer, reply)
  }
}

function askFor(inner: FastifyInstance, { method, url, headers }: FastifyRequest): Promise<Answer> {
  return inner.inject({ method: method as 'GET' | 'HEAD', url, headers })
}

function pass(answer: Answer, reply: FastifyReply): FastifyReply {
  if (answer.statusCode === 404) {
    const policy = 'content-security-policy'
    reply.header(policy, answer.headers[policy]).callNotFound()
    return reply
  }
  // The outer application sets its own Date and Connection.
  const { date: _date, connection: _connection, ...kept } = answer.headers
  return reply.code(answer.statusCode).headers(kept).send(answer.rawPayload)
}
