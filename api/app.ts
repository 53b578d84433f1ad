import cors from '@fastify/cors'
import {
  fastify,
  type FastifyInstance,
  type FastifyPluginAsync,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify'

import type { ServerConfig } from '#shared/config/server.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import { healthPlugin, type HealthServices } from './health/plugin.ts'
import { corsOptions } from './http/cors.ts'
import { registerFarewell } from './http/drain.ts'
import { isBug, normalizeError } from './http/normalize-error.ts'
import { leaveBodiesUnread } from './http/head.ts'
import { registerJsonBody } from './http/json-body.ts'
import { registerOpenApi } from './http/openapi.ts'
import {
  hearOutLargeBodies,
  refuseConnection,
  refuseEncodedBodies,
  refuseInvalidHosts,
} from './http/refused-connections.ts'
import { requestIdFrom } from './http/request-id.ts'
import { registerRequestLog } from './http/request-log.ts'
import { sendSecurityHeaders } from './http/security-headers.ts'
import { firstSegmentOf, pathOf } from './http/url-path.ts'
import { registerValidation } from './http/validation.ts'
import { collectWholePieces } from './http/whole-pieces.ts'
import type { HttpObserver } from './telemetry/http-observer.ts'
import { presentError } from './v1/error-dialect.ts'
import { withoutTrailingSlash } from './v1/trailing-slash.ts'

/** One encapsulated scope with one error dialect. */
export interface Surface {
  /** Where it is mounted; several places serve the same routes. */
  readonly prefixes: readonly string[]
  readonly plugin: FastifyPluginAsync
  /** Answers what is unknown at the root below these first segments of a path. */
  readonly unknownBelow?: {
    readonly segments: ReadonlySet<string>
    readonly answer: (request: FastifyRequest, reply: FastifyReply) => FastifyReply
  }
}

export interface AppOptions {
  readonly server: ServerConfig
  readonly version: string
  /** The address that clients use, as the OpenAPI document states it. */
  readonly publicUrl: string
  readonly log: Logger
  /** Measures and traces every request. */
  readonly observer?: HttpObserver
  readonly health: HealthServices
  readonly surfaces: readonly Surface[]
  /** Headers that browsers may send to the user server besides the usual ones; any if there are none. */
  readonly corsAllowedHeaders?: readonly string[]
  /** Those who look on at every request; what they throw, they keep to themselves. */
  readonly watchers?: readonly { register(app: FastifyInstance): void }[]
}

// Slow or silent clients hold a socket no longer than this.
const HEADERS_TIMEOUT_MS = 15_000
const REQUEST_TIMEOUT_MS = 300_000
// Access tokens carry the metadata of their users.
const HEADER_BYTES_MAX = 64 * 1024
const KEEP_ALIVE_TIMEOUT_MS = 72_000
const MAX_PARAM_LENGTH = 512

/** The whole HTTP application; does no I/O until it is asked to listen or to serve. */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const { server, log } = options
  const app = fastify({
    bodyLimit: server.bodyBytesMax,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    http: { headersTimeout: HEADERS_TIMEOUT_MS, maxHeaderSize: HEADER_BYTES_MAX },
    trustProxy: server.trustedProxies.length > 0 ? [...server.trustedProxies] : false,
    rewriteUrl: ({ url = '/' }) => withoutTrailingSlash(url),
    genReqId: requestIdFrom(server.requestIdHeader),
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH, ignoreDuplicateSlashes: true },
    forceCloseConnections: 'idle',
    // Who still holds a connection while the process stops is served on it.
    return503OnClosing: false,
    // Paths that cannot be read belong to no surface.
    frameworkErrors: (error, _request, reply) => refuse(normalizeError(error), reply),
    clientErrorHandler: refuseConnection,
  })
  // Plain text is no form of any request here; each surface adds what it takes besides JSON.
  app.removeContentTypeParser('text/plain')
  registerJsonBody(app)
  collectWholePieces(app)
  registerRequestLog(app, log, options.observer)
  refuseEncodedBodies(app)
  refuseInvalidHosts(app)
  hearOutLargeBodies(app)
  leaveBodiesUnread(app)
  registerFarewell(app, options.health.isDraining)
  for (const watcher of options.watchers ?? []) watcher.register(app)
  registerValidation(app)
  // Before the first route: those that come with the plugins answer in this form too.
  app.setErrorHandler((thrown, request, reply) => {
    const error = normalizeError(thrown)
    if (isBug(error)) log.error({ err: error.cause, requestId: request.id }, 'request failed')
    return refuse(error, reply)
  })
  await app.register(cors, corsOptions(options.corsAllowedHeaders ?? []))
  // Pages state their own content security policy; the API answers need none.
  sendSecurityHeaders(app, { contentSecurityPolicy: false, crossOriginResourcePolicy: false })
  await registerOpenApi(app, { version: options.version, serverUrl: options.publicUrl })
  answerUnknownPaths(app, options.surfaces)
  await app.register(healthPlugin(options.health))
  for (const surface of options.surfaces) {
    for (const prefix of surface.prefixes) await app.register(surface.plugin, { prefix })
  }
  return app
}

// The surfaces speak for what is below their first segments, so that their clients can read it.
function answerUnknownPaths(app: FastifyInstance, surfaces: readonly Surface[]): void {
  app.setNotFoundHandler((request, reply) => {
    const segment = firstSegmentOf(request.url) ?? ''
    const owner = surfaces.find(({ unknownBelow }) => unknownBelow?.segments.has(segment))
    if (owner?.unknownBelow !== undefined) return owner.unknownBelow.answer(request, reply)
    const message = `Unknown request URL: ${request.method} ${pathOf(request.url)}. See /docs for what is served here.`
    return refuse(failure.notFound(message, { code: 'unknown_url' }), reply)
  })
}

/** What no surface answers, in the form that most clients here read. */
function refuse(error: ServiceError, reply: FastifyReply): FastifyReply {
  const { status, headers, body } = presentError(error)
  return reply.code(status).headers(headers).send(body)
}
