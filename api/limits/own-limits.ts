import { anonymousUsersCannot, type Caller } from '#api/v1/request-context.ts'
import { failure } from '#shared/errors.ts'

/**
 * Refuses a key with its own limits, which could otherwise evade them through another or a new key.
 */
export function requireUnlimitedKey({ limits }: Caller): void {
  if (limits === undefined) return
  throw failure.accessDenied(
    'An API key with limits of its own cannot create, rotate or limit API keys.',
    { code: 'insufficient_permissions' },
  )
}

/**
 * Refuses work without a request to callers whose limits count requests: keys with their own
 * limits, and anonymous users, who share those of their network.
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
