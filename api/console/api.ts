import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { normalizeError } from '#api/http/normalize-error.ts'
import { failure } from '#shared/errors.ts'

import { type Administrator, administratorOf, type ConsoleRole, requireRole } from './access.ts'
import { holdsFormSecret, isSameOrigin } from './cookies.ts'

/** The audit entry of an action: its name, its object and, after a failure, the reason. */
type AuditedAction = Readonly<Record<string, unknown>> & { readonly operation: string }

/** Writes an action to the audit log. */
export type RecordAction = (
  request: FastifyRequest,
  administrator: Administrator,
  action: AuditedAction,
) => Promise<void>

/** A request of the console's API, checked against the schemas of its route. */
export interface ConsoleCall<Params = object, Body = object, Query = object> {
  readonly request: FastifyRequest
  readonly reply: FastifyReply
  readonly administrator: Administrator
  readonly params: Params
  readonly body: Body
  readonly query: Query
}

/** One route of the console's API. */
interface ConsoleRoute {
  readonly path: string
  readonly query?: object
  readonly handle: (call: ConsoleCall<never, never, never>) => Promise<unknown>
}

/** A route that changes something. */
interface ConsoleAction extends ConsoleRoute {
  readonly method: 'POST' | 'PATCH' | 'DELETE'
  readonly role: Exclude<ConsoleRole, 'viewer'>
  /** The name of the action in the audit log. */
  readonly operation: string
  readonly body?: object
  /** Fields of the audit entry besides the path parameters; never a secret. */
  readonly detail?: (body: never) => object
}

/** The routes of one area of the console. */
export interface ConsoleArea {
  readonly reads: readonly (ConsoleRoute & { readonly role?: ConsoleRole })[]
  readonly actions: readonly ConsoleAction[]
}

/** The schema of a name or another short text. */
export const SHORT_TEXT = {
  type: 'string',
  minLength: 1,
  maxLength: 200,
  pattern: '^[^\\u0000]+$',
} as const

const ID_LENGTH_MAX = 512
/** The header that repeats the CSRF token. */
const TOKEN_HEADER = 'x-console-token'

/**
 * Registers the areas of the console's API. Every change needs a role, comes from the same origin,
 * carries the CSRF token where a cookie authenticates it, and is in the audit log before it
 * happens.
 */
export function registerConsoleApi(
  app: FastifyInstance,
  areas: readonly ConsoleArea[],
  record: RecordAction,
): void {
  for (const { reads, actions } of areas) {
    for (const route of reads) {
      app.get(route.path, { schema: schemaOf(route) }, async (request, reply) => {
        const administrator = administratorOf(request)
        requireRole(administrator, route.role ?? 'viewer')
        return route.handle(callOf(request, reply, administrator))
      })
    }
    for (const action of actions) registerAction(app, action, record)
  }
}

function registerAction(app: FastifyInstance, action: ConsoleAction, record: RecordAction): void {
  const { method, path, operation } = action
  app.route({
    method,
    url: path,
    schema: schemaOf(action),
    handler: async (request, reply) => {
      const administrator = administratorOf(request)
      requireOwnPage(request, administrator)
      requireRole(administrator, action.role)
      const call = callOf(request, reply, administrator)
      const entry = { operation, ...(call.params as object), ...action.detail?.(call.body) }
      // Before the action: what cannot be recorded does not happen.
      await record(request, administrator, entry)
      try {
        return (await action.handle(call)) ?? {}
      } catch (thrown) {
        const { code, kind } = normalizeError(thrown)
        await record(request, administrator, { ...entry, failed: code ?? kind })
        throw thrown
      }
    },
  })
}

function requireOwnPage(request: FastifyRequest, { credential }: Administrator): void {
  const token = request.headers[TOKEN_HEADER]
  const isOwn =
    isSameOrigin(request) &&
    (credential === 'header' ||
      holdsFormSecret(request, typeof token === 'string' ? token : undefined))
  if (isOwn) return
  throw failure.accessDenied('The request came from another page or is too old: reload the page.', {
    code: 'foreign_request',
  })
}

function callOf(request: FastifyRequest, reply: FastifyReply, administrator: Administrator) {
  // The schemas of the route have checked all three.
  const { params, body, query } = request
  return { request, reply, administrator, params, body: body ?? {}, query } as ConsoleCall<
    never,
    never,
    never
  >
}

/** The schema of a body. */
export function bodyOf(properties: object, required: readonly string[] = []) {
  return { type: 'object', additionalProperties: false, required, properties }
}

function schemaOf({ path, query, body }: Pick<ConsoleAction, 'path' | 'query' | 'body'>) {
  const names = [...path.matchAll(/:(\w+)/g)].map(([, name = '']) => name)
  const id = { ...SHORT_TEXT, maxLength: ID_LENGTH_MAX }
  return {
    hide: true,
    ...(names.length > 0 && {
      params: {
        type: 'object',
        required: names,
        properties: Object.fromEntries(names.map((name) => [name, id])),
      },
    }),
    ...(query !== undefined && { querystring: query }),
    ...(body !== undefined && { body }),
  }
}
