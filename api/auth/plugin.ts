import type {
  FastifyPluginAsync,
  FastifyReply,
  FastifyRequest,
  FastifySchema,
  RouteOptions,
} from 'fastify'

import { checkMetadataFields } from '#api/auth/users/metadata-limit.ts'
import { isBug, normalizeError } from '#api/http/normalize-error.ts'
import { clientOf, networkOf, pathOf, plainAddress } from '#api/http/request.ts'
import { schemaCompiler, type Validate } from '#api/http/validation.ts'
import { withinTime } from '#shared/clock.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { isPublicAddress } from '#shared/net/private-addresses.ts'
import { mismatchOf } from '#shared/validation.ts'

import { badJson, registerBodyParsers } from './body-parser.ts'
import type { Answer, AuthRequest, UserRequest } from './context.ts'
import { presentAuthError } from './error-dialect.ts'
import { authFailure, invalid } from './errors.ts'
import { admit, describeRequest, findClaims, headerOf, isAdmin } from './guards.ts'
import { lookalikes, methodsInsteadOf } from './other-methods.ts'
import type { Route } from './route.ts'
import { ROUTES } from './routes.ts'
import type { AuthServices } from './services.ts'

/** The user server as one encapsulated surface; register it once per prefix. */
export function authPlugin(services: AuthServices): FastifyPluginAsync {
  const compile = schemaCompiler()
  return async (app) => {
    registerBodyParsers(app)
    app.setValidatorCompiler(({ schema, httpPart }) =>
      validatorOf(compile(schema as object), httpPart),
    )
    app.setErrorHandler((thrown, request, reply) => sendError(services, { thrown, request, reply }))
    const prefix = app.prefix.length > 1 ? app.prefix : ''
    // At the root the application answers unknown paths.
    if (prefix !== '') {
      app.setNotFoundHandler((request, reply) => {
        if (headerOf(request, VERSION_HEADER) !== undefined) return refuse(request, reply, UNKNOWN)
        return reply.code(404).type('text/plain').send('404 page not found\n')
      })
      // Runs before a body is read.
      app.addHook('onRequest', (request, reply, next) => {
        if (!request.is404 || refuseOtherMethod(request, reply, prefix) === undefined) next()
      })
    }
    for (const row of ROUTES) {
      const options = optionsOf(services, row)
      app.route(options)
      // Some clients append a slash to paths.
      app.route({ ...options, url: `${row.path}/`, schema: { ...options.schema, hide: true } })
    }
    for (const { url, methods } of lookalikes()) {
      const handler = async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> =>
        refuseOtherMethod(request, reply, prefix)
      app.route({ method: methods, url, schema: { hide: true }, onRequest: handler, handler })
    }
  }
}

// Clients that send a version parse every refusal as JSON, also for features that only newer
// servers have; other clients receive the older form.
const VERSION_HEADER = 'x-supabase-api-version'
/** The path does not exist. */
const UNKNOWN = failure.notFound('This path is not served')
const NOT_ALLOWED = failure.methodNotAllowed('This path is not served by this method')

/** Answers with a failure, in the error format of the client's version. */
export function refuse(
  request: FastifyRequest,
  reply: FastifyReply,
  error: ServiceError,
): FastifyReply {
  const apiVersion = headerOf(request, VERSION_HEADER)
  const answer = presentAuthError(error, { apiVersion, requestId: request.id })
  return reply.code(answer.status).headers(answer.headers).send(answer.body)
}

/**
 * Refuses a method that a path of the table does not have. Such requests match no route, because
 * routes for all of them would double the router.
 */
function refuseOtherMethod(
  request: FastifyRequest,
  reply: FastifyReply,
  prefix = '',
): FastifyReply | undefined {
  const path = decodeURI(pathOf(request.url)).slice(prefix.length)
  const allowed = methodsInsteadOf(request.method, path.replace(/(?<=.)\/$/, ''))
  return allowed === undefined ? undefined : refuseMethod(request, reply, allowed)
}

function refuseMethod(
  request: FastifyRequest,
  reply: FastifyReply,
  allowed: readonly string[],
): FastifyReply {
  reply.header('allow', allowed.join(', '))
  if (headerOf(request, VERSION_HEADER) === undefined) return reply.code(405).send()
  return refuse(request, reply, NOT_ALLOWED)
}

function optionsOf(services: AuthServices, row: Route): RouteOptions {
  const schema: FastifySchema = {
    tags: [row.guard === 'admin' ? 'users: administration' : 'users'],
    summary: row.operation,
    ...(row.isHidden && { hide: true }),
    ...(row.guard !== 'public' && { security: [{ userToken: [] }] }),
    ...(row.body !== undefined && { body: row.body }),
    ...(row.query !== undefined && { querystring: row.query }),
    ...(row.params !== undefined && { params: row.params }),
  }
  return {
    method: row.method,
    url: row.path,
    schema,
    // A HEAD request would run the flow, and mail scanners must not use up links.
    exposeHeadRoute: false,
    // Callers without a valid credential are refused before an invalid body; see `run`.
    attachValidation: row.guard !== 'public',
    preValidation: async (request) => {
      if (row.body === undefined || request.body) return
      if (!row.isBodyOptional) throw badJson('the body is empty')
      request.body = {}
    },
    handler: async (request, reply) => {
      const limitMs = services.config.site.maxRequestDurationSeconds * 1000
      const work = run(services, row, request)
      const answer = await withinTime(work, limitMs, () => authFailure('request_timeout'))
      return send(reply, answer)
    },
  }
}

async function run(services: AuthServices, row: Route, request: FastifyRequest): Promise<Answer> {
  const { body, query, params } = request
  await takeLimit(services, row, request)
  const guard = row.guard === 'public' && row.needsUser(body, query) ? 'user' : row.guard
  const caller = guard === 'public' ? undefined : await admit(services, request, guard)
  if (request.validationError !== undefined) throw request.validationError
  if (caller?.kind === 'user') await takeChange(services, row, request, caller.user.id)
  const claims = caller?.claims ?? (await findClaims(services, request))
  if (row.captcha(body, query) && !(await isAdmin(services, claims))) {
    await checkCaptcha(services, request)
  }
  checkMetadataFields(body)
  const described: AuthRequest = describeRequest(services, request, claims)
  const withCaller = caller === undefined ? described : { ...described, caller }
  return row.flow({ services, request: withCaller as UserRequest, body, query, params })
}

async function takeLimit(
  services: AuthServices,
  row: Route,
  request: FastifyRequest,
): Promise<void> {
  if (row.limit === undefined) return
  const { header } = services.config.rateLimits
  const client = header === '' ? '' : clientOf(headerOf(request, header) ?? '')
  // The address of an untrusted proxy, or of this machine, identifies no client.
  if (client === '' && !(row.storesForVisitors && isPublicAddress(request.ip))) return
  const limit = row.limit(request.body)
  const bucket = limit === 'anonymousUsers' ? limit : row.operation.replace('Link', '')
  if (client !== '') return services.limits.takeRequest(limit, bucket, client)
  await services.limits.takeRequest(limit, `network ${bucket}`, networkOf(request), NETWORK_SHARE)
}

// Each change of a user adds an entry to the audit log, and some store other rows. A thief of an
// access token must not keep its user from ending the session, so sign-outs count by themselves.
async function takeChange(
  services: AuthServices,
  row: Route,
  request: FastifyRequest,
  userId: string,
): Promise<void> {
  const isRead = row.method === 'GET' && !row.writes
  if (isRead) return
  const limit = row.path === '/logout' ? 'sign-outs' : 'changes'
  const network = networkOf(request, services.config.rateLimits.header)
  await services.limits.takeOfAccount(limit, { id: userId, network })
}

/** Many people may share the address of a network, so it has the limits of this many clients. */
const NETWORK_SHARE = 10

async function checkCaptcha(services: AuthServices, request: FastifyRequest): Promise<void> {
  if (!services.config.captcha.isEnabled) return
  const body = request.body as {
    readonly captcha_token?: string
    readonly gotrue_meta_security?: { readonly captcha_token?: string | null }
  }
  const answer = body.gotrue_meta_security?.captcha_token || body.captcha_token
  if (!answer) {
    throw authFailure('captcha_failed', {
      message: 'captcha protection: request disallowed (no captcha_token found)',
    })
  }
  await services.captcha.verify(answer, plainAddress(request.ip))
}

function send(reply: FastifyReply, answer: Answer): FastifyReply {
  // Every answer here concerns one person.
  if (!reply.hasHeader('cache-control')) reply.header('cache-control', 'no-store')
  switch (answer.kind) {
    case 'json':
      return reply
        .code(answer.status)
        .headers(answer.headers ?? {})
        .send(answer.body)
    case 'redirect':
      if (answer.cookie !== undefined) reply.header('set-cookie', answer.cookie)
      return reply.redirect(asciiOf(answer.url), answer.status)
    case 'empty':
      return reply.code(204).send()
  }
}

// Headers are limited to ASCII; browsers decode the escapes.
function asciiOf(url: string): string {
  return url.toWellFormed().replace(/[^\u0021-\u007e]+/g, encodeURIComponent)
}

function sendError(
  services: AuthServices,
  failed: {
    readonly thrown: unknown
    readonly request: FastifyRequest
    readonly reply: FastifyReply
  },
): FastifyReply {
  const { request, reply } = failed
  const error = normalizeError(failed.thrown)
  if (isBug(error)) {
    services.log.error({ err: loggable(error.cause), requestId: request.id }, 'request failed')
  }
  return refuse(request, reply, error)
}

// Errors of the query builder contain the values of the query, and those of the database some of
// them: addresses and hashes must not be logged.
function loggable(cause: unknown): object {
  if (!(cause instanceof Error)) return { message: 'a value other than an error was thrown' }
  const inner = 'query' in cause && cause.cause instanceof Error ? cause.cause : cause
  const { code, constraint } = inner as { readonly code?: unknown; readonly constraint?: unknown }
  const frames = (cause.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line))
  const message = 'query' in inner ? 'a query failed' : inner.message
  const reason = inner === cause ? reasonOf(cause) : undefined
  return { type: inner.name, message, code, constraint, reason, stack: frames.join('\n') }
}

const CAUSES_MAX = 5

// The causes of a failure, such as the answer of a mail server: only codes, because messages repeat
// email addresses.
function reasonOf(failed: Error): object | undefined {
  let deepest = failed
  for (let depth = 0; depth < CAUSES_MAX && deepest.cause instanceof Error; depth++) {
    deepest = deepest.cause
  }
  if (deepest === failed) return undefined
  const { code, responseCode, command } = deepest as {
    readonly code?: unknown
    readonly responseCode?: unknown
    readonly command?: unknown
  }
  return { type: deepest.name, code, responseCode, command }
}

type Validator = (value: unknown) => { value: unknown } | { error: Error }

function validatorOf(validate: Validate, httpPart: string | undefined): Validator {
  return (value) => {
    if (validate(value)) return { value }
    const [first] = validate.errors ?? []
    if (first === undefined) throw new Error('a validator gave no reason')
    const field = first.instancePath.slice(1).replaceAll('/', '.')
    const reason = `${field === '' ? 'the value' : field} ${mismatchOf(first)}`
    return { error: httpPart === 'body' ? badJson(reason) : invalid(reason, field) }
  }
}

// Path prefixes of newer servers, which their clients may request.
const NEWER = ['oauth', 'saml']

/** The first segments of paths at the root that only clients of the user server request. */
const SEGMENTS: ReadonlySet<string> = new Set([
  ...ROUTES.map(({ path }) => path.split('/')[1] as string),
  ...NEWER,
])

/** 404 in the error format of the user server. */
function answerUnknownPath(request: FastifyRequest, reply: FastifyReply): FastifyReply {
  return refuse(request, reply, UNKNOWN)
}

/** How the application answers unknown paths at the root. */
export const UNKNOWN_PATHS = {
  segments: SEGMENTS,
  refuseMethod: refuseOtherMethod,
  answer: answerUnknownPath,
}
