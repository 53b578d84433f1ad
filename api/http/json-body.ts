import { isUtf8 } from 'node:buffer'

import type { FastifyInstance } from 'fastify'

import { failure, type ServiceError } from '#shared/errors.ts'
import { judgeJson } from '#shared/judge-json.ts'

/**
 * Reads JSON, by the name of `application/json` if there is no other. A body is judged before it is parsed: a million small objects take far
 * more memory, and time of the event loop, than the bytes that they are written in.
 */
export function registerJsonBody(app: FastifyInstance, types = ['application/json']): void {
  const parse = app.getDefaultJsonParser('error', 'error')
  app.removeContentTypeParser(types)
  app.addContentTypeParser(types, { parseAs: 'buffer' }, (request, body, done) => {
    // Older clients name the type also where a route has no body and they send none.
    const hasBody = request.routeOptions.schema?.body !== undefined
    if (body.length === 0 && !hasBody) return done(null, undefined)
    const fault = judgeJson(body as Buffer)
    if (fault !== undefined) return done(fault)
    // Decoding would put other characters where the client's bytes are none.
    if (!isUtf8(body as Buffer)) return done(notUtf8())
    // The parser ends by calling back; it returns nothing of its own.
    void parse(request, (body as Buffer).toString('utf8'), done)
  })
}

function notUtf8(): ServiceError {
  return failure.invalidRequest('The JSON body is not valid UTF-8.', { code: 'invalid_utf8' })
}
