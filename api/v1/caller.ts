import type { FastifyRequest } from 'fastify'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { ApiKeyStore } from '#shared/db/api-keys.ts'
import { failure } from '#shared/errors.ts'

import type { RequiredScope } from './scopes.ts'

/** The authenticated caller of a request and its permissions. */
export interface Caller {
  readonly organizationId: string
  /** Set when the request carried an API key. */
  readonly apiKeyId?: string
  /** The user who made the API key; of keys of the operator it is not set. */
  readonly madeBy?: string
  /** Set when the request carried a user's access token. */
  readonly userId?: string
  /** The user has no email address, phone number or provider. */
  readonly isAnonymous?: boolean
  /** The user's role in the organization. */
  readonly role?: 'owner' | 'admin' | 'member'
  /** Null means all. */
  readonly scopes: readonly string[] | null
  /** Null means all. */
  readonly modelIds: readonly string[] | null
  /** When the credential stops working; null means never. */
  readonly expiresAtMs: number | null
}

/** The caller of a request. Only routes behind authentication may use it. */
export function callerOf({ context: { caller } }: Pick<FastifyRequest, 'context'>): Caller {
  if (caller === undefined) throw new Error('the route is not behind the credential check')
  return caller
}

/** Throws `accessDenied` when the caller's key is not meant for this family of endpoints. */
export function requireScope(caller: Caller, scope: RequiredScope): void {
  if (scope === 'any' || caller.scopes === null || caller.scopes.includes(scope)) return
  throw failure.accessDenied(
    `You have insufficient permissions for this operation. Missing scopes: ${scope}.`,
    { code: 'missing_scope' },
  )
}

/** Whether the caller's key may use a model. */
export function mayUseModel(caller: Caller, model: CatalogueModel): boolean {
  return caller.modelIds === null || caller.modelIds.includes(model.id)
}

/**
 * A key manages keys, organizations and members only while the user who created it may: a revoked
 * creator must not leave a valid key behind. Other uses of the key continue.
 */
export async function requireCreator(
  apiKeys: Pick<ApiKeyStore, 'mayManage'>,
  { organizationId, madeBy }: Caller,
): Promise<void> {
  if (madeBy === undefined || (await apiKeys.mayManage(organizationId, madeBy))) return
  throw failure.accessDenied(
    'The user who made this API key may not manage this organization any more, so the key may not either. Ask an administrator of the organization for a new one.',
    { code: 'insufficient_permissions' },
  )
}

/** The account that the jobs of a request are charged to. */
export interface JobAccount {
  readonly requestId: string
  readonly apiKeyId: string | undefined
  readonly userId: string | undefined
  /** Names the use where several jobs may run for one answer; the job does otherwise. */
  readonly usageId?: string
  /** Called once per job with the tokens that it used. */
  noteTokens(tokens: number): void
}

/** The account of a request behind the credential check. */
export function accountOf(request: FastifyRequest): JobAccount {
  const { apiKeyId, userId } = callerOf(request)
  return {
    requestId: request.id,
    apiKeyId,
    userId,
    noteTokens: (tokens) => request.context.onTokens?.(tokens),
  }
}
