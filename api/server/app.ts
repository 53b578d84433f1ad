import {
  createServer,
  type IncomingMessage,
  type ServerOptions,
  type ServerResponse,
} from 'node:http'

import cors from '@fastify/cors'
import {
  type FastifyInstance,
  type FastifyPluginAsync,
  type FastifyReply,
  type FastifyRequest,
  fastify,
} from 'fastify'
import helmet, { type HelmetOptions } from 'helmet'

import { type HealthServices, healthPlugin } from '#api/health/plugin.ts'
import {
  readRefusedBodies,
  refuseConnection,
  refuseEncodedBodies,
  refuseInvalidHosts,
  registerConnectionDraining,
} from '#api/http/connections.ts'
import { corsOptions } from '#api/http/cors.ts'
import { limitBodyMemory } from '#api/http/limit-body-memory.ts'
import { isBug, normalizeError } from '#api/http/normalize-error.ts'
import { registerOpenApi } from '#api/http/openapi.ts'
import {
  firstSegmentOf,
  hasEmptyParameter,
  pathOf,
  registerRequestLog,
  requestIdFrom,
  routedUrl,
} from '#api/http/request.ts'
import { SCHEMA_CONTROLLER } from '#api/http/serialization.ts'
import { cutSlowReaders, PEER_LIMITS, type PeerLimits } from '#api/http/slow-peers.ts'
import { joinSmallChunks } from '#api/http/sse.ts'
import { leaveBodiesUnread } from '#api/http/stored-bytes.ts'
import { registerJsonBody, registerValidation } from '#api/http/validation.ts'
import type { HttpObserver } from '#api/telemetry/observe-requests.ts'
import { methodNotAllowed, watchMethods } from '#api/v1/allowed-methods.ts'
import { presentError } from '#api/v1/error-dialect.ts'
import { insteadOf } from '#api/v1/instead.ts'
import { addRequestContext } from '#api/v1/request-context.ts'
import type { ServerConfig } from '#shared/config/server.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'
import { handleInOrder } from '#shared/net/pipelining.ts'

/** One encapsulated scope with one error dialect. */
export interface Surface {
  /** The path prefixes of the surface; several prefixes serve the same routes. */
  readonly prefixes: readonly string[]
  readonly plugin: FastifyPluginAsync
  /** Answers unknown paths below these first path segments. */
  readonly unknownBelow?: {
    readonly segments: ReadonlySet<string>
    /** Refuses a method that a known path does not have, before a body is read. */
    readonly refuseMethod: (
      request: FastifyRequest,
      reply: FastifyReply,
    ) => FastifyReply | undefined
    readonly answer: (request: FastifyRequest, reply: FastifyReply) => FastifyReply
  }
}

interface AppOptions {
  readonly server: ServerConfig
  readonly version: string
  /** The public URL, as stated in the OpenAPI document. */
  readonly publicUrl: string
  readonly log: Logger
  /** Measures and traces every request. */
  readonly observer?: HttpObserver
  readonly health: HealthServices
  readonly surfaces: readonly Surface[]
  /**
   * Additional request headers that browsers may send to the user server; any header when empty.
   */
  readonly corsAllowedHeaders?: readonly string[]
  /** Limits for slow clients; those of production if absent. */
  readonly peerLimits?: PeerLimits
  /** Hooks that observe every request; errors thrown by these hooks are logged and ignored. */
  readonly watchers?: readonly { register(app: FastifyInstance): void }[]
}

// Large enough for access tokens, which carry user metadata.
const HEADER_BYTES_MAX = 64 * 1024
const KEEP_ALIVE_TIMEOUT_MS = 72_000
/** Maximum characters of a path parameter. */
export const MAX_PARAM_LENGTH = 512

/** Builds the HTTP application; does no I/O before it listens or serves a request. */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const { server, log, peerLimits = PEER_LIMITS } = options
  const app = fastify({
    bodyLimit: server.bodyBytesMax,
    // Called once for each address that a host name has.
    serverFactory: (listener) => createServer(httpOptions(peerLimits), handleInOrder(listener)),
    trustProxy: server.trustedProxies.length > 0 ? [...server.trustedProxies] : false,
    rewriteUrl: ({ url = '/' }) => routedUrl(url),
    genReqId: requestIdFrom(server.requestIdHeader),
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    schemaController: SCHEMA_CONTROLLER,
    forceCloseConnections: 'idle',
    // Requests on open connections are served while the process stops.
    return503OnClosing: false,
    // URLs that cannot be decoded belong to no surface.
    frameworkErrors: (error, _request, reply) => refuse(normalizeError(error), reply),
    clientErrorHandler: refuseConnection,
  })
  // No route accepts text/plain; each surface adds the types it accepts besides JSON.
  app.removeContentTypeParser('text/plain')
  registerJsonBody(app)
  joinSmallChunks(app)
  addRequestContext(app)
  registerRequestLog(app, log, options.observer)
  limitBodyMemory(app, server.largeBodiesBytesMax)
  refuseEmptyParameters(app)
  nameTypeOfUnknownQueries(app)
  refuseEncodedBodies(app)
  refuseInvalidHosts(app)
  readRefusedBodies(app)
  leaveBodiesUnread(app)
  cutSlowReaders(app, peerLimits)
  registerConnectionDraining(app, options.health.isDraining)
  for (const watcher of options.watchers ?? []) watcher.register(app)
  registerValidation(app)
  // Registered before the first route, so that routes of plugins use this error form too.
  app.setErrorHandler((thrown, request, reply) => {
    const error = normalizeError(thrown)
    if (isBug(error)) log.error({ err: error.cause, requestId: request.id }, 'request failed')
    return refuse(error, reply)
  })
  await app.register(cors, corsOptions(options.corsAllowedHeaders ?? []))
  // Pages set their own content security policy; API answers need none.
  sendSecurityHeaders(app, { contentSecurityPolicy: false, crossOriginResourcePolicy: false })
  answerUnknownPaths(app, options.surfaces)
  registerOpenApi(app, { version: options.version, serverUrl: options.publicUrl })
  await app.register(healthPlugin(options.health))
  for (const surface of options.surfaces) {
    for (const prefix of surface.prefixes) await app.register(surface.plugin, { prefix })
  }
  return app
}

function httpOptions({ requestMs, headersMs, checkMs }: PeerLimits): ServerOptions {
  return {
    requestTimeout: requestMs,
    headersTimeout: headersMs,
    connectionsCheckingInterval: checkMs,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    maxHeaderSize: HEADER_BYTES_MAX,
  }
}

// The router matches empty segments. They are answered like an unknown path of the route's surface.
function refuseEmptyParameters(app: FastifyInstance): void {
  app.addHook('onRequest', ({ params }, reply, done) => {
    if (hasEmptyParameter(params)) reply.callNotFound()
    else done()
  })
}

// Fastify requires a Content-Type for QUERY before it reports that no route has the method.
function nameTypeOfUnknownQueries(app: FastifyInstance): void {
  app.addHook('onRequest', ({ is404, method, raw }, _reply, done) => {
    if (is404 && method === 'QUERY') raw.headers['content-type'] ??= 'application/json'
    done()
  })
}

// Unknown paths below a surface's first segments are answered in its dialect, unknown methods of
// other known paths with 405.
function answerUnknownPaths(app: FastifyInstance, surfaces: readonly Surface[]): void {
  const allowedMethods = watchMethods(app)
  const below = surfaces.flatMap(({ unknownBelow = [] }) => unknownBelow)
  app.addHook('onRequest', (request, reply, next) => {
    const isRefused =
      request.is404 && below.some((owner) => owner.refuseMethod(request, reply) !== undefined)
    if (!isRefused) next()
  })
  app.setNotFoundHandler((request, reply) => {
    const path = pathOf(request.url)
    const segment = firstSegmentOf(request.url) ?? ''
    const owner = below.find(({ segments }) => segments.has(segment))
    if (owner !== undefined) return owner.answer(request, reply)
    const allowed = allowedMethods(path)
    // A route may answer like an unknown path itself.
    if (allowed.length > 0 && !allowed.includes(request.method)) {
      reply.header('allow', allowed.join(', '))
      return refuse(methodNotAllowed(request.method, path), reply)
    }
    const isServed = (other: string): boolean => allowedMethods(other).length > 0
    const help = insteadOf(path, isServed) || '. See /docs for what is served here.'
    const message = `Unknown request URL: ${request.method} ${path}${help}`
    return refuse(failure.notFound(message, { code: 'unknown_url' }), reply)
  })
}

/** Any other unknown path is answered in the OpenAI dialect. */
function refuse(error: ServiceError, reply: FastifyReply): FastifyReply {
  const { status, headers, body } = presentError(error)
  return reply.code(status).headers(headers).send(body)
}

/**
 * Adds Helmet's headers to every answer of a scope. They do not depend on the request, so they are
 * computed once and an open answer holds no copy of its own.
 */
export function sendSecurityHeaders(app: FastifyInstance, options: HelmetOptions): void {
  const headers = headersOf(options)
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers(headers)
    done()
  })
}

function headersOf(options: HelmetOptions): Readonly<Record<string, string>> {
  const headers: Record<string, string> = {}
  const response = {
    setHeader(name: string, value: string) {
      headers[name.toLowerCase()] = value
    },
    removeHeader: () => {},
  }
  helmet(options)({} as IncomingMessage, response as unknown as ServerResponse, (error) => {
    if (error !== undefined) throw error
  })
  return headers
}
