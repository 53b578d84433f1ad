import { EMPTY, type Answer, type UserRequest } from '../context.ts'
import { invalid } from '../errors.ts'
import { endSessions, type LogoutScope } from '../identity/sessions.ts'
import { inTransaction } from '../identity/store.ts'
import type { LogoutQuery, Parsed } from '../schemas.ts'
import type { AuthServices } from '../services.ts'
import { record } from '../steps/record.ts'

const SCOPES: readonly LogoutScope[] = ['global', 'local', 'others']

/** Ends sessions of the user; access tokens that are out stay valid until they expire. */
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
