import { anonymousUsersCannot, type Caller } from '#api/v1/request-context.ts'
import { failure } from '#shared/errors.ts'

/**
 * Refuses a key with limits of its own: through another key, or a new one, it would have none.
 */
export function requireUnlimitedKey({ limits }: Caller): void {
  if (limits === undefined) return
  throw failure.accessDenied(
    'An API key with limits of its own cannot create, rotate or limit API keys.',
    { code: 'insufficient_permissions' },
  )
}

/**
 * Refuses work that runs without a request to callers whose limits count requests: those of a key
 * of its own, and those that the anonymous users of one network share.
 */
export function requireUncountedCaller(
  { limits, isAnonymous }: Pick<Caller, 'limits' | 'isAnonymous'>,
  work: string,
): void {
  if (isAnonymous === true) throw anonymousUsersCannot(`create ${work}`)
  if (limits === undefined) return
  throw failure.accessDenied(
    `API keys with limits of their own cannot create ${work}: their limits count requests alone.`,
    { code: 'insufficient_permissions' },
  )
}
