import { json, type Answer, type UserRequest } from '../context.ts'
import { authFailure } from '../errors.ts'
import { presentUser } from '../identity/present-user.ts'
import { loadParts } from '../identity/users.ts'
import type { AuthServices } from '../services.ts'

/** The user of the access token. */
export async function user(services: AuthServices, request: UserRequest): Promise<Answer> {
  const { claims, user: row } = request.caller
  const audiences = [claims.aud ?? ''].flat()
  if (!audiences.includes(request.audience)) throw authFailure('unexpected_audience')
  return json(presentUser(await loadParts(services.store, row)))
}
