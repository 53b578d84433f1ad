import type { FastifyInstance, FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'

import { isBug, normalizeError } from '#api/http/normalize-error.ts'
import { networkOf, pathOf } from '#api/http/request.ts'
import {
  reportIgnored,
  type UnknownFields,
  validatorCompiler,
  writeIgnoredHeader,
} from '#api/http/validation.ts'
import { STORED_REQUEST_HEADER, type StoredRequests } from '#api/jobs/stored-requests.ts'
import type { Clock } from '#shared/clock.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import { type AllowedMethods, methodNotAllowed, watchMethods } from './allowed-methods.ts'
import { type CredentialServices, createAuthenticate, notAMember, TRUST_MS } from './credentials.ts'
import { type ErrorAnswer, presentError } from './error-dialect.ts'
import { insteadOf } from './instead.ts'
import { type Caller, callerOf, requireCreator, requireScope } from './request-context.ts'
import type { RequiredScope } from './scopes.ts'
import { type SchemaComplaint, validationFailure } from './validation-message.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The scope that a route of `/v1` requires. */
    scope?: RequiredScope
    /** Whether unknown fields of its forms are refused or ignored; set by the plugin. */
    unknownFields?: UnknownFields
    /** The error dialect of a route; that of the plugin if absent. */
    presentError?: PresentError
  }
}

// The API version that OpenAI has reported since 2020.
const API_VERSION = '2020-10-01'
const REASON_LENGTH_MAX = 300
// Keys, memberships and webhooks stay valid longer than the credential that creates them.
const OUTLASTING: readonly RequiredScope[] = ['keys', 'organizations', 'webhooks']
const READS: readonly string[] = ['GET', 'HEAD']

/** The dependencies that all surfaces below `/v1` share. */
export interface V1Services extends CredentialServices {
  readonly log: Logger
  /** Hooks of every authenticated request, in this order, after its body was read. */
  readonly gates?: readonly Gate[]
  /** Runs before the route of a valid job request and may answer it. */
  readonly respondAsync?: Gate
  /** The requests that background jobs send. */
  readonly storedRequests?: Pick<StoredRequests, 'take'>
  /** Whether request fields that no route knows are refused (if absent) or ignored and reported. */
  readonly unknownFields?: UnknownFields
  /** The error dialect of unknown paths, and of routes that name none; OpenAI's if absent. */
  readonly presentError?: PresentError
}

type PresentError = (error: ServiceError, request: FastifyRequest) => ErrorAnswer

/** Runs before the route: may set headers, throw, or answer. */
export type Gate = (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>

/**
 * `/v1` as one scope: the surfaces registered in it share credentials, headers and error dialect.
 * Each route states the scope that it requires as `config: { scope }`.
 */
export function v1Plugin(
  services: V1Services,
  surfaces: readonly FastifyPluginAsync[],
  { answersUnknownPaths = true }: { readonly answersUnknownPaths?: boolean } = {},
): FastifyPluginAsync {
  return async (app) => {
    // Answers are presented by hand, exactly; the response schemas are for the document.
    app.setSerializerCompiler(() => (answer) => JSON.stringify(answer))
    const answer = addErrorDialect(app, services)
    if (answersUnknownPaths) answerUnknownPaths(app, watchMethods(app), answer)
    addCredentials(app, services)
    if (services.unknownFields === 'ignore') ignoreUnknownFields(app)
    for (const surface of surfaces) await app.register(surface)
  }
}

/**
 * Authenticates every request before its body is read, and sets the headers about the caller. If
 * the body takes longer than a credential is trusted, the request is authenticated again after it:
 * a revoked key must not act by requests that it began before.
 */
function addCredentials(app: FastifyInstance, services: V1Services): void {
  const identify = createIdentify(services)
  app.addHook('onRoute', ({ url, config }) => {
    if (config?.scope === undefined) throw new Error(`the route ${url} states no scope`)
  })
  app.addHook('onRequest', async (request, reply) => {
    const { scope } = request.routeOptions.config
    if (scope === undefined || scope === 'none') return
    // `Authorization` is the only header with keys that caches know (RFC 9111, section 3.5).
    reply.header('cache-control', 'private, no-cache')
    const token = request.headers[STORED_REQUEST_HEADER]
    const stored = token === undefined ? undefined : services.storedRequests?.take(token)
    if (stored !== undefined) {
      // The caller was authenticated when the job was stored.
      request.context.stored = stored
      request.context.caller = stored.caller
      request.context.onUse = (use) => stored.noteUse(use)
      return
    }
    const identifiedAtMs = services.clock.monotonic()
    const caller = await identify(request, scope)
    request.context.confirmCaller = createConfirm(request, {
      identify: () => identify(request, scope),
      clock: services.clock,
      identifiedAtMs,
    })
    reportIgnored(request, ignoredHeaders(request, caller.organizationId))
    reply.header('openai-version', API_VERSION)
    reply.header('openai-organization', caller.organizationId)
  })
  app.addHook('preValidation', async ({ context }) => context.confirmCaller?.())
  for (const gate of services.gates ?? []) {
    app.addHook('preValidation', async (request, reply) => {
      const { scope } = request.routeOptions.config
      if (scope === undefined || scope === 'none' || reply.sent) return undefined
      return gate(request, reply)
    })
  }
  const { respondAsync } = services
  if (respondAsync !== undefined) {
    app.addHook('preHandler', async (request, reply) => {
      return request.headers.prefer === undefined ? undefined : respondAsync(request, reply)
    })
  }
  app.addHook('onSend', async (request, reply) => {
    if (request.routeOptions.config.scope === undefined) return
    writeIgnoredHeader(reply)
    reply.header('openai-processing-ms', Math.round(reply.elapsedTime))
  })
}

/** Sets the caller of a request by its credential. Throws unless the scope permits the request. */
function createIdentify(services: V1Services) {
  const authenticate = createAuthenticate(services)
  return async (request: FastifyRequest, scope: RequiredScope): Promise<Caller> => {
    const organization = request.headers['openai-organization']
    const outlasts = OUTLASTING.includes(scope) && !READS.includes(request.method)
    const caller = await authenticate({
      authorization: credentialOf(request),
      organization:
        typeof organization === 'string' && organization !== '' ? organization : undefined,
      network: networkOf(request),
      outlasts,
    })
    requireScope(caller, scope)
    if (outlasts) await requireCreator(services.apiKeys, caller)
    request.context.caller = caller
    return caller
  }
}

/** Identifies the caller again when the last time is too long ago; called after a body was read. */
function createConfirm(
  request: FastifyRequest,
  identified: {
    readonly identify: () => Promise<Caller>
    readonly clock: Clock
    readonly identifiedAtMs: number
  },
): () => Promise<void> {
  const { identify, clock } = identified
  const { organizationId } = callerOf(request)
  let { identifiedAtMs } = identified
  return async () => {
    const nowMs = clock.monotonic()
    if (nowMs - identifiedAtMs < TRUST_MS) return
    identifiedAtMs = nowMs
    const now = await identify()
    if (now.organizationId !== organizationId) throw notAMember(organizationId)
  }
}

/**
 * The headers that choose an organization or project and have no effect: many machines have them
 * set for another server. The report is the same whether or not a foreign one exists.
 */
function ignoredHeaders({ headers }: FastifyRequest, organizationId: string): string[] {
  const organization = headers['openai-organization'] ?? ''
  const project = headers['openai-project'] ?? ''
  return [
    ...(organization !== '' && organization !== organizationId ? ['OpenAI-Organization'] : []),
    ...(project !== '' ? ['OpenAI-Project'] : []),
  ]
}

/** The Authorization header, or the key in a header that other dialects use. */
function credentialOf({ headers }: FastifyRequest): string | undefined {
  if ((headers.authorization ?? '').trim() !== '') return headers.authorization
  const key = headers['x-api-key'] ?? headers['api-key']
  return typeof key === 'string' && key.trim() !== '' ? `Bearer ${key.trim()}` : undefined
}

/**
 * Routes ignore unknown fields of bodies and report them. Routes that create credentials refuse
 * them: an ignored restriction would grant more than was requested.
 */
function ignoreUnknownFields(app: FastifyInstance): void {
  const compiler = validatorCompiler('ignore')
  app.addHook('onRoute', (route) => {
    const scope = route.config?.scope
    if (scope === undefined || OUTLASTING.includes(scope)) return
    route.config = { ...route.config, unknownFields: 'ignore' }
    route.validatorCompiler ??= compiler
  })
}

type AnswerError = (
  error: ServiceError,
  request: FastifyRequest,
  reply: FastifyReply,
) => FastifyReply

function addErrorDialect(app: FastifyInstance, services: V1Services): AnswerError {
  const answer: AnswerError = (error, request, reply) => {
    if (isBug(error))
      services.log.error({ err: error.cause, requestId: request.id }, 'request failed')
    // The cause is for the operator; the client does not get it.
    else if (error.kind === 'overloaded' && error.cause !== undefined)
      services.log.warn(
        { requestId: request.id, reason: reasonOf(error) },
        'a service is in trouble',
      )
    const present =
      request.routeOptions.config.presentError ?? services.presentError ?? presentError
    const { status, headers, body } = present(error, request)
    return reply.code(status).headers(headers).type('application/json; charset=utf-8').send(body)
  }
  app.setErrorHandler((thrown, request, reply) =>
    answer(translate(thrown, request), request, reply),
  )
  return answer
}

function answerUnknownPaths(
  app: FastifyInstance,
  allowedMethods: AllowedMethods,
  answer: AnswerError,
): void {
  app.setNotFoundHandler((request, reply) => {
    const path = pathOf(request.url)
    const allowed = allowedMethods(path)
    if (allowed.length === 0) {
      const isServed = (other: string): boolean => allowedMethods(other).length > 0
      const message = `Invalid URL (${request.method} ${path})${insteadOf(path, isServed)}`
      return answer(failure.notFound(message), request, reply)
    }
    reply.header('allow', allowed.join(', '))
    return answer(methodNotAllowed(request.method, path), request, reply)
  })
}

function reasonOf({ cause }: ServiceError): string {
  const { name, message } = cause as Partial<Error>
  return `${name}: ${message}`.slice(0, REASON_LENGTH_MAX)
}

function translate(thrown: unknown, request: FastifyRequest): ServiceError {
  const complaints = complaintsOf(thrown)
  if (complaints === undefined) return normalizeError(thrown)
  const { part, list } = complaints
  const schema = request.routeOptions.schema as Readonly<Record<string, unknown>> | undefined
  return validationFailure(list, {
    value: part === 'body' ? request.body : request[part],
    schema: schema?.[part === 'query' ? 'querystring' : part],
  })
}

type RequestPart = 'body' | 'params' | 'query' | 'headers'

function complaintsOf(
  thrown: unknown,
): { part: RequestPart; list: readonly SchemaComplaint[] } | undefined {
  if (typeof thrown !== 'object' || thrown === null || !('validation' in thrown)) return undefined
  const part = 'validationContext' in thrown ? thrown.validationContext : 'body'
  return {
    part: (part === 'querystring' ? 'query' : part) as RequestPart,
    list: thrown.validation as readonly SchemaComplaint[],
  }
}
