import { and, eq, gt, isNotNull } from 'drizzle-orm'

import { record } from '#api/auth/audit/record.ts'
import { type AdminRequest, type Answer, json } from '#api/auth/context.ts'
import { sendTokenMail } from '#api/auth/delivery/send-mail.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { approveNewUser } from '#api/auth/hooks/new-user-hooks.ts'
import type { InviteBody, Parsed } from '#api/auth/schemas.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import type { Store } from '#api/auth/store.ts'
import { inviteAccount, isConfirmed } from '#api/auth/users/accounts.ts'
import { parseEmail } from '#api/auth/users/contact.ts'
import { presentUser } from '#api/auth/users/present-user.ts'
import { findUserByContact, loadParts } from '#api/auth/users/user-store.ts'
import type { OneTimeTokenRow } from '#shared/db/schema/auth.ts'

/** Creates a user and sends an invitation, even while sign-up is disabled. */
export async function invite(
  services: AuthServices,
  request: AdminRequest,
  body: Parsed<typeof InviteBody>,
): Promise<Answer> {
  if (!body.email) throw invalid('An email address is required', 'email')
  const email = parseEmail(body.email)
  const contact = { kind: 'email', email } as const
  await services.addresses.requireDeliverable(contact)
  const candidate = { provider: 'email', email, userMetadata: body.data }
  const isNew = (await findUserByContact(services.store, contact)) === undefined
  const id = isNew ? await approveNewUser(services, request, candidate) : undefined
  const user = await inOneTransaction(services, async (tx) => {
    const { store } = tx
    const known = await findUserByContact(store, contact)
    if (known !== undefined && isConfirmed(known, 'email')) return undefined
    const invitation = { id, email, known, data: body.data, request }
    const invited = await inviteAccount(services, store, invitation)
    if (invited === undefined) return undefined
    await record(services, store, {
      request,
      actor: { kind: 'admin', role: request.caller.role },
      action: 'user_invited',
      traits: { user_id: invited.id, user_email: email },
    })
    const mail = { user: invited, name: 'invite', to: email, isPaced: false } as const
    return sendTokenMail(tx, request, mail)
  })
  if (user === undefined) throw authFailure('email_exists')
  return json(presentUser(await loadParts(services.store, user)))
}

/** The invitation of this link, while it is valid. */
export async function findInvitation(
  store: Store,
  linkSha256: Buffer,
): Promise<OneTimeTokenRow | undefined> {
  const { users, oneTimeTokens } = store.tables
  const [row] = await store.db
    .select({ token: oneTimeTokens })
    .from(oneTimeTokens)
    .innerJoin(users, eq(users.id, oneTimeTokens.userId))
    .where(
      and(
        eq(oneTimeTokens.linkSha256, linkSha256),
        eq(oneTimeTokens.kind, 'confirmation'),
        gt(oneTimeTokens.expiresAt, store.now()),
        isNotNull(users.invitedAt),
      ),
    )
  return row?.token
}
