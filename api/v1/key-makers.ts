import type { ApiKeyStore } from '#shared/db/api-keys.ts'
import { failure } from '#shared/errors.ts'

import type { Caller } from './caller.ts'

/**
 * A key manages keys, organizations and members only for as long as the user who made it may do so:
 * else whoever is shown the door would leave one open. What the key is used for otherwise goes on.
 */
export async function mustHaveMaker(
  apiKeys: Pick<ApiKeyStore, 'mayManage'>,
  { organizationId, madeBy }: Caller,
): Promise<void> {
  if (madeBy === undefined || (await apiKeys.mayManage(organizationId, madeBy))) return
  throw failure.accessDenied(
    'The user who made this API key may not manage this organization any more, so the key may not either. Ask an administrator of the organization for a new one.',
    { code: 'insufficient_permissions' },
  )
}
