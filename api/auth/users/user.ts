import { json, type Answer, type UserRequest } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import { presentUser } from './present-user.ts'
import { loadParts } from './users.ts'
import type { AuthServices } from '#api/auth/services.ts'

/** The user of the access token. */
export async function user(services: AuthServices, request: UserRequest): Promise<Answer> {
  const { claims, user: row } = request.caller
  const audiences = [claims.aud ?? []].flat().filter((audience) => audience !== '')
  // Access tokens without an audience are for any.
  const isMeant = audiences.length === 0 || audiences.includes(request.audience)
  if (!isMeant) throw authFailure('unexpected_audience')
  return json(presentUser(await loadParts(services.store, row)))
}
