import { record } from '#api/auth/audit/record.ts'
import { type Answer, EMPTY, type UserRequest } from '#api/auth/context.ts'
import { invalid } from '#api/auth/errors.ts'
import type { LogoutQuery, Parsed } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { inTransaction } from '#api/auth/store.ts'

import { endSessions, type LogoutScope } from './sessions.ts'

const SCOPES: readonly LogoutScope[] = ['global', 'local', 'others']

/** Ends sessions of the user. Issued access tokens stay valid until they expire. */
export async function logout(
  services: AuthServices,
  request: UserRequest,
  query: Parsed<typeof LogoutQuery>,
): Promise<Answer> {
  const scope = SCOPES.find((known) => known === (query.scope || 'global'))
  if (scope === undefined) throw invalid(`Unsupported logout scope "${query.scope}"`, 'scope')
  const { user, session } = request.caller
  await inTransaction(services.store, async (store) => {
    await endSessions(store, { userId: user.id, scope, sessionId: session?.id })
    await record(services, store, { request, actor: { kind: 'user', user }, action: 'logout' })
  })
  return EMPTY
}
