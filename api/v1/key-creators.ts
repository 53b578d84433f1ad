import type { ApiKeyStore } from '#shared/db/api-keys.ts'
import { failure } from '#shared/errors.ts'

import type { Caller } from './caller.ts'

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
