import { json, type Answer, type UserRequest } from '../context.ts'
import { authFailure } from '../errors.ts'
import { presentUser } from '../identity/present-user.ts'
import { loadParts } from '../identity/users.ts'
import type { AuthServices } from '../services.ts'

/** The user of the access token. */
export async function user(services: AuthServices, request: UserRequest): Promise<Answer> {
  const { claims, user: row } = request.caller
  const audiences = [claims.aud ?? []].flat().filter((audience) => audience !== '')
  // Access tokens without an audience are for any.
  const isMeant = audiences.length === 0 || audiences.includes(request.audience)
  if (!isMeant) throw authFailure('unexpected_audience')
  return json(presentUser(await loadParts(services.store, row)))
}
