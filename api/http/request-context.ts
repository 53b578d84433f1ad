import type { IncomingMessage } from 'node:http'

import type { Context } from '@opentelemetry/api'
import type { FastifyInstance } from 'fastify'

import type { Administrator } from '#api/console/access.ts'
import type { StoredRequest } from '#api/jobs/respond-async.ts'
import type { Caller } from '#api/v1/caller.ts'
import type { DurableRequest } from '#api/v1/durable.ts'
import { requestId } from '#shared/ids.ts'

/** What the hooks of a request find out for its route. */
export interface RequestContext {
  /** Set by the credential check of `/v1`. */
  caller?: Caller
  /** Set by the guard of the console. */
  administrator?: Administrator
  /** Set for a request whose jobs outlive this process. */
  durable?: DurableRequest
  /** Set when this is the stored request of a background job. */
  stored?: StoredRequest
  /** Called with the tokens that each job of the request used. */
  onTokens?: (tokens: number) => void
  /** Set while the request is traced. */
  trace?: Context
  /** Fields that have no effect on the answer. */
  readonly ignoredFields: Set<string>
}

declare module 'fastify' {
  interface FastifyRequest {
    context: RequestContext
  }
}

/** Gives every request its context; registered before all other hooks. */
export function addRequestContext(app: FastifyInstance): void {
  app.decorateRequest('context')
  app.addHook('onRequest', (request, _reply, done) => {
    request.context = { ignoredFields: new Set() }
    done()
  })
}

const SAFE = /^[A-Za-z0-9_.:-]{1,64}$/

/**
 * The id of a request: taken from the configured header when its value is harmless, else generated.
 */
export function requestIdFrom(header: string): (request: IncomingMessage) => string {
  return (request) => {
    const inherited = header === '' ? undefined : request.headers[header]
    return typeof inherited === 'string' && SAFE.test(inherited) ? inherited : requestId()
  }
}
