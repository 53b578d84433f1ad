import type { Static, TSchema } from 'typebox'

import type { AdminRequest, Answer, AuthRequest, UserRequest } from './context.ts'
import type { Guard } from './guards.ts'
import type { RequestLimit } from './rate-limits.ts'
import type { AuthServices } from './services.ts'

interface RequestByGuard {
  readonly public: AuthRequest
  readonly user: UserRequest
  readonly admin: AdminRequest
}

/** The validated request that a row passes to its flow. */
interface Call<G extends Guard, B, Q, P> {
  readonly services: AuthServices
  readonly request: RequestByGuard[G]
  readonly body: B
  readonly query: Q
  readonly params: P
}

type Value<S> = S extends TSchema ? Static<S> : undefined

/** One row of the routing table, as it is written. */
interface RouteRow<G extends Guard, B, Q, P> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly path: string
  /** Dotted name of the operation, for logs and metrics. */
  readonly operation: string
  readonly guard: G
  /** Which requests to a public row still need a signed-in user. */
  readonly needsUser?: (body: Value<B>, query: Value<Q>) => boolean
  /** The bucket that counts requests of the client's address. */
  readonly limit?: RequestLimit | ((body: Value<B>) => RequestLimit)
  /**
   * Whether requests without a session may store rows, such as users: its limit then applies even
   * without a configured header.
   */
  readonly storesForVisitors?: boolean
  /** Whether a GET request stores rows, so that it counts as a change of its user. */
  readonly writes?: boolean
  /** Whether a CAPTCHA is required, if CAPTCHAs are enabled. */
  readonly captcha?: boolean | ((body: Value<B>, query: Value<Q>) => boolean)
  readonly body?: B
  /** True for rows that the API description leaves out. */
  readonly isHidden?: boolean
  /** Whether the body may be missing. */
  readonly isBodyOptional?: boolean
  readonly query?: Q
  readonly params?: P
  readonly flow: (call: Call<G, Value<B>, Value<Q>, Value<P>>) => Promise<Answer>
}

/** A row after type erasure. */
export interface Route {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly path: string
  readonly operation: string
  readonly guard: Guard
  readonly needsUser: (body: unknown, query: unknown) => boolean
  readonly limit: ((body: unknown) => RequestLimit) | undefined
  readonly storesForVisitors: boolean
  readonly writes: boolean
  readonly captcha: (body: unknown, query: unknown) => boolean
  readonly body: TSchema | undefined
  readonly isBodyOptional: boolean
  readonly isHidden: boolean
  readonly query: TSchema | undefined
  readonly params: TSchema | undefined
  readonly flow: (call: Call<Guard, unknown, unknown, unknown>) => Promise<Answer>
}

/** A row of the routing table; the flow's input has the types of the row's schemas. */
export function route<
  const G extends Guard,
  B extends TSchema | undefined = undefined,
  Q extends TSchema | undefined = undefined,
  P extends TSchema | undefined = undefined,
>(row: RouteRow<G, B, Q, P>): Route {
  const { limit, captcha = false, needsUser } = row
  return {
    method: row.method,
    path: row.path,
    operation: row.operation,
    guard: row.guard,
    needsUser: (body, query) => needsUser?.(body as Value<B>, query as Value<Q>) ?? false,
    limit:
      limit === undefined
        ? undefined
        : (body) => (typeof limit === 'function' ? limit(body as Value<B>) : limit),
    storesForVisitors: row.storesForVisitors ?? false,
    writes: row.writes ?? false,
    captcha: (body, query) =>
      typeof captcha === 'function' ? captcha(body as Value<B>, query as Value<Q>) : captcha,
    body: row.body,
    isBodyOptional: row.isBodyOptional ?? false,
    isHidden: row.isHidden ?? false,
    query: row.query,
    params: row.params,
    // The validator has checked the values against the row's schemas before this is called.
    flow: row.flow as unknown as Route['flow'],
  }
}
