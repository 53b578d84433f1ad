import { record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import { announceNewUser, approveNewUser } from '#api/auth/hooks/new-user-hooks.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { startSession, tokenResponse } from '#api/auth/sessions/start-session.ts'
import { inTransaction } from '#api/auth/store.ts'
import { mergeMetadata } from '#api/auth/users/present-user.ts'
import { insertUser } from '#api/auth/users/user-store.ts'
import type { Metadata } from '#shared/db/schema/auth.ts'
import { failure } from '#shared/errors.ts'

/** Creates a user without any contact and signs it in. */
export async function signInAnonymously(
  services: AuthServices,
  request: AuthRequest,
  data: Metadata | undefined,
): Promise<Answer> {
  const { signup, jwt } = services.config
  if (!signup.isAnonymousEnabled) throw authFailure('anonymous_provider_disabled')
  if (signup.isDisabled) throw authFailure('signup_disabled')
  const candidate = { provider: undefined, userMetadata: data }
  const id = await approveNewUser(services, request, candidate)
  const started = await inTransaction(services.store, async (store) => {
    const user = await insertUser(store, {
      ...(id !== undefined && { id }),
      aud: request.audience,
      role: jwt.defaultGroupName,
      userMetadata: mergeMetadata({}, data),
      isAnonymous: true,
    })
    if (user === undefined) throw failure.internal('The user could not be created.')
    await announceNewUser(services, store, request, user)
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'user_signedup',
      traits: { provider: 'anonymous' },
    })
    return startSession(store, { user, proof: { method: 'anonymous' }, request })
  })
  return json(await tokenResponse(services, started))
}
