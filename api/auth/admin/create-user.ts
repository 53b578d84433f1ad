import { record } from '#api/auth/audit/record.ts'
import { type AdminRequest, type Answer, json } from '#api/auth/context.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { parseUuid, UUID } from '#api/auth/factors/own-factor.ts'
import type { AdminUserBody, Parsed } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { inTransaction } from '#api/auth/store.ts'
import { contactClaims } from '#api/auth/users/accounts.ts'
import type { Contact } from '#api/auth/users/contact.ts'
import { saveContactIdentity } from '#api/auth/users/identities.ts'
import { mergeMetadata, presentUser } from '#api/auth/users/present-user.ts'
import {
  findAnyUserById,
  findUserByContact,
  insertUser,
  loadParts,
} from '#api/auth/users/user-store.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'

import { parseBan, parseContacts, parsePassword, verifiedClaims } from './user.ts'

type Body = Parsed<typeof AdminUserBody>

/**
 * Creates a user without sending a message. The `user_id` of the path takes precedence over the
 * `id` of the body.
 */
export async function adminCreateUser(
  services: AuthServices,
  request: AdminRequest,
  body: Body,
  params: { readonly user_id?: string },
): Promise<Answer> {
  const contacts = parseContacts(body)
  const { email, phone } = contacts
  if (email === undefined && phone === undefined) {
    throw invalid('Cannot create a user without either an email or phone')
  }
  const id = await parseNewId(services, params.user_id, body.id)
  await checkTaken(services, contacts)
  const passwordHash = await parsePassword(services, body, { areChecked: false })
  const user = await inTransaction(services.store, async (store) => {
    const now = store.now()
    const providers = [...(email ? ['email'] : []), ...(phone ? ['phone'] : [])]
    const created = await insertUser(store, {
      ...(id !== undefined && { id }),
      email,
      phone,
      passwordHash,
      aud: body.aud || request.audience,
      role: body.role || services.config.jwt.defaultGroupName,
      userMetadata: mergeMetadata(verifiedClaims(contacts, body), body.user_metadata),
      appMetadata: { provider: providers[0], ...mergeMetadata({}, body.app_metadata), providers },
      bannedUntil: parseBan(body.ban_duration, now) ?? null,
      ...(email && body.email_confirm && { emailConfirmedAt: now }),
      ...(phone && body.phone_confirm && { phoneConfirmedAt: now }),
    })
    if (created === undefined) {
      // A concurrent request created the user; its row is visible now.
      await checkTaken({ ...services, store }, contacts)
      throw authFailure('conflict', { message: 'The user exists already' })
    }
    const all: Contact[] = [
      ...(email ? [{ kind: 'email', email } as const] : []),
      ...(phone ? [{ kind: 'phone', phone } as const] : []),
    ]
    for (const contact of all) await addIdentity(store, created, { contact, body })
    await record(services, store, {
      request,
      actor: { kind: 'admin', role: request.caller.role },
      action: 'user_signedup',
      traits: {
        user_id: created.id,
        ...(email && { user_email: email }),
        ...(phone && { user_phone: phone }),
        provider: providers[0],
      },
    })
    return created
  })
  return json(presentUser(await loadParts(services.store, user)))
}

async function parseNewId(
  services: AuthServices,
  idOfPath: string | undefined,
  idOfBody: string | undefined,
): Promise<string | undefined> {
  if (idOfPath === undefined && !idOfBody) return undefined
  const id = idOfPath === undefined ? idOfBody : parseUuid(idOfPath, 'user_id')
  if (id === undefined || !UUID.test(id)) throw invalid('ID must be an UUID', 'id')
  if (id === NIL_UUID) throw invalid('ID cannot be a nil uuid', 'id')
  if (await findAnyUserById(services.store, id)) {
    throw authFailure('user_already_exists', { message: 'A user with this id exists already' })
  }
  return id.toLowerCase()
}

const NIL_UUID = '00000000-0000-0000-0000-000000000000'

async function checkTaken(
  services: AuthServices,
  contacts: { readonly email?: string; readonly phone?: string },
): Promise<void> {
  const { email, phone } = contacts
  if (email && (await findUserByContact(services.store, { kind: 'email', email }))) {
    throw authFailure('email_exists')
  }
  if (phone && (await findUserByContact(services.store, { kind: 'phone', phone }))) {
    throw authFailure('phone_exists', {
      message: 'Phone number already registered by another user',
    })
  }
}

async function addIdentity(
  store: AuthServices['store'],
  user: UserRow,
  made: { readonly contact: Contact; readonly body: Body },
): Promise<void> {
  const { contact, body } = made
  const isConfirmed = contact.kind === 'email' ? body.email_confirm : body.phone_confirm
  const verified = contact.kind === 'email' ? 'email_verified' : 'phone_verified'
  await saveContactIdentity(store, {
    userId: user.id,
    provider: contact.kind,
    identityData: { ...contactClaims(user.id, contact), [verified]: isConfirmed === true },
  })
}
