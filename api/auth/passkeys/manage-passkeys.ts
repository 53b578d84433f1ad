import { record } from '#api/auth/audit/record.ts'
import { type Answer, EMPTY, json, type UserRequest } from '#api/auth/context.ts'
import { invalid } from '#api/auth/errors.ts'
import type { Parsed, PasskeyParams, PasskeyUpdateBody } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { requireLiveSession } from '#api/auth/sessions/sessions.ts'
import { inTransaction } from '#api/auth/store.ts'
import { lockUser } from '#api/auth/users/user-store.ts'
import { deletePasskey, listPasskeys, renamePasskey } from '#api/auth/webauthn/credentials.ts'

import {
  parsePasskeyId,
  presentPasskey,
  requirePasskeyAssurance,
  requirePasskeys,
  unknownPasskey,
} from './own-passkey.ts'

const NAME_CHARACTERS_MAX = 120

/** The passkeys of the user. */
export async function passkeys(services: AuthServices, request: UserRequest): Promise<Answer> {
  requirePasskeys(services)
  const { user } = request.caller
  return json((await listPasskeys(services.store, user.id)).map(presentPasskey))
}

/** Renames a passkey of the user. */
export async function updatePasskey(
  services: AuthServices,
  request: UserRequest,
  body: Parsed<typeof PasskeyUpdateBody>,
  params: Parsed<typeof PasskeyParams>,
): Promise<Answer> {
  requirePasskeys(services)
  const { user } = request.caller
  const id = parsePasskeyId(params.passkey_id)
  const name = body.friendly_name ?? ''
  if (name === '') throw invalid('friendly_name is required', 'friendly_name')
  if (name.length > NAME_CHARACTERS_MAX) {
    const message = `friendly_name must be ${NAME_CHARACTERS_MAX} characters or less`
    throw invalid(message, 'friendly_name')
  }
  const renamed = await inTransaction(services.store, async (store) => {
    const passkey = await renamePasskey(store, { id, userId: user.id }, name)
    if (passkey === undefined) throw unknownPasskey()
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'passkey_updated',
      traits: { passkey_id: id },
    })
    return passkey
  })
  return json(presentPasskey(renamed))
}

/** Deletes a passkey of the user. */
export async function removePasskey(
  services: AuthServices,
  request: UserRequest,
  params: Parsed<typeof PasskeyParams>,
): Promise<Answer> {
  requirePasskeys(services)
  await requirePasskeyAssurance(services, request)
  const { user } = request.caller
  const id = parsePasskeyId(params.passkey_id)
  await inTransaction(services.store, async (store) => {
    await lockUser(store, user.id)
    await requireLiveSession(store, request.caller.session)
    if (!(await deletePasskey(store, { id, userId: user.id }))) throw unknownPasskey()
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'passkey_deleted',
      traits: { passkey_id: id },
    })
  })
  return EMPTY
}
