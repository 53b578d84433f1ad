import { record } from '#api/auth/audit/record.ts'
import { type AdminRequest, type Answer, EMPTY, json } from '#api/auth/context.ts'
import { parsePasskeyId, presentPasskey, unknownPasskey } from '#api/auth/passkeys/own-passkey.ts'
import type { Parsed, UserParams, UserPasskeyParams } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { inTransaction } from '#api/auth/store.ts'
import { deletePasskey, listPasskeys } from '#api/auth/webauthn/credentials.ts'

import { getUser } from './user.ts'

/** The passkeys of a user. */
export async function adminListPasskeys(
  services: AuthServices,
  _request: AdminRequest,
  params: Parsed<typeof UserParams>,
): Promise<Answer> {
  const user = await getUser(services, params.user_id)
  return json((await listPasskeys(services.store, user.id)).map(presentPasskey))
}

/** Deletes a passkey of a user. */
export async function adminDeletePasskey(
  services: AuthServices,
  request: AdminRequest,
  params: Parsed<typeof UserPasskeyParams>,
): Promise<Answer> {
  const user = await getUser(services, params.user_id)
  const id = parsePasskeyId(params.passkey_id)
  await inTransaction(services.store, async (store) => {
    if (!(await deletePasskey(store, { id, userId: user.id }))) throw unknownPasskey()
    await record(services, store, {
      request,
      actor: { kind: 'admin', role: request.caller.role },
      action: 'passkey_deleted',
      traits: { user_id: user.id, passkey_id: id },
    })
  })
  return EMPTY
}
