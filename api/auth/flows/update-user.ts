import type { UserRow } from '#shared/db/schema/auth.ts'

import { json, type Answer, type UserRequest } from '../context.ts'
import { authFailure, invalid } from '../errors.ts'
import { parseEmail, parsePhone } from '../identity/contact.ts'
import { hasVerifiedFactor } from '../identity/factors.ts'
import { parsePkce } from '../identity/flow-states.ts'
import { clearOneTimeTokens } from '../identity/one-time-tokens.ts'
import { mergeMetadata, presentUser } from '../identity/present-user.ts'
import { endSessions } from '../identity/sessions.ts'
import { inTransaction } from '../identity/store.ts'
import {
  findUserByContact,
  loadParts,
  lockUser,
  updateUser,
  type UserChanges,
} from '../identity/users.ts'
import type { Parsed, UserUpdateBody } from '../schemas.ts'
import type { AuthServices } from '../services.ts'
import { preparePassword } from '../steps/change-password.ts'
import { record } from '../steps/record.ts'
import { applyEmailChange, applyPhoneChange } from '../steps/redeem.ts'
import { sendEmailChange } from '../steps/send-email-change.ts'
import { requireChannel } from '../steps/send-mail.ts'
import { sendTokenSms } from '../steps/send-sms.ts'

type Body = Parsed<typeof UserUpdateBody>

interface Change {
  readonly body: Body
  /** New address or number; undefined when it stays. */
  readonly email: string | undefined
  readonly phone: string | undefined
  readonly passwordHash: string | undefined
}

/** Changes the user of the access token; new addresses and numbers wait for confirmation. */
export async function updateOwnUser(
  services: AuthServices,
  request: UserRequest,
  body: Body,
): Promise<Answer> {
  const pkce = parsePkce(body)
  const channel = requireChannel(services, body.channel)
  const change = await parseChange(services, request, body)
  const stored = await store(services, request, change)
  const isImmediate = stored.isAnonymous && services.config.mailer.isAutoconfirm
  let user = stored
  if (change.email !== undefined) {
    user = isImmediate
      ? await inTransaction(services.store, (tx) => applyEmailChange(tx, stored))
      : await sendEmailChange(services, request, { user: stored, pkce })
  }
  if (change.phone !== undefined) {
    user = services.config.sms.isAutoconfirm
      ? await inTransaction(services.store, (tx) => applyPhoneChange(tx, user))
      : await sendPhoneChange(services, request, { user, to: change.phone, channel })
  }
  return json(presentUser(await loadParts(services.store, user)))
}

async function parseChange(
  services: AuthServices,
  request: UserRequest,
  body: Body,
): Promise<Change> {
  const { user } = request.caller
  const email = body.email ? parseEmail(body.email) : undefined
  const phone = body.phone ? parsePhone(body.phone) : undefined
  const newEmail = email === user.email ? undefined : email
  const newPhone = phone === user.phone ? undefined : phone
  checkAppMetadata(services, request, body)
  await checkAssurance(services, request, {
    isSensitive: Boolean(body.password) || newEmail !== undefined || newPhone !== undefined,
  })
  if (user.isAnonymous && body.password && newEmail === undefined && newPhone === undefined) {
    throw authFailure('validation_failed', {
      message: 'Updating password of an anonymous user without an email or phone is not allowed',
      kind: 'unprocessable',
      param: 'password',
    })
  }
  await checkTaken(services, { newEmail, newPhone })
  const passwordHash = body.password
    ? await preparePassword(services, request, { password: body.password, nonce: body.nonce })
    : undefined
  return { body, email: newEmail, phone: newPhone, passwordHash }
}

function checkAppMetadata(services: AuthServices, request: UserRequest, body: Body): void {
  if (body.app_metadata === undefined) return
  const { adminGroupName } = services.config.inherited
  const isAdmin = adminGroupName !== '' && request.caller.user.role === adminGroupName
  if (!isAdmin)
    throw authFailure('not_admin', { message: 'Updating app_metadata requires admin privileges' })
}

async function checkAssurance(
  services: AuthServices,
  request: UserRequest,
  change: { readonly isSensitive: boolean },
): Promise<void> {
  const { user, session } = request.caller
  if (!change.isSensitive || session?.aal === 'aal2') return
  if (!(await hasVerifiedFactor(services.store, user.id))) return
  throw authFailure('insufficient_aal', {
    message: 'AAL2 session is required to update email or password when MFA is enabled.',
    kind: 'unauthenticated',
  })
}

async function checkTaken(
  services: AuthServices,
  wanted: { readonly newEmail: string | undefined; readonly newPhone: string | undefined },
): Promise<void> {
  const { signup } = services.config
  const { newEmail: email, newPhone: phone } = wanted
  if (email !== undefined && (await findUserByContact(services.store, { kind: 'email', email }))) {
    throw authFailure('email_exists')
  }
  if (phone === undefined) return
  if (!signup.isPhoneEnabled) throw invalid('Phone logins are disabled', 'phone')
  if (await findUserByContact(services.store, { kind: 'phone', phone })) {
    throw authFailure('phone_exists')
  }
}

async function store(
  services: AuthServices,
  request: UserRequest,
  change: Change,
): Promise<UserRow> {
  const { user: before, session } = request.caller
  const { body, email, phone, passwordHash } = change
  const actor = { kind: 'user', user: before } as const
  return inTransaction(services.store, async (tx) => {
    // Metadata is merged under the lock, so that of two changes at once none is lost.
    const user = await lockUser(tx, before.id)
    const changes: UserChanges = {
      ...(body.data && { userMetadata: mergeMetadata(user.userMetadata, body.data) }),
      ...(body.app_metadata && { appMetadata: mergeMetadata(user.appMetadata, body.app_metadata) }),
      ...(email !== undefined && { emailChange: email, emailChangeAgreed: 0 }),
      ...(phone !== undefined && { phoneChange: phone }),
      ...(passwordHash !== undefined && { passwordHash }),
    }
    const updated = await updateUser(tx, user.id, changes)
    if (passwordHash !== undefined) {
      await endSessions(tx, { userId: user.id, scope: 'others', sessionId: session?.id })
      await clearOneTimeTokens(tx, user.id)
      await record(services, tx, { request, actor, action: 'user_updated_password' })
    }
    await record(services, tx, { request, actor, action: 'user_modified' })
    return updated
  })
}

async function sendPhoneChange(
  services: AuthServices,
  request: UserRequest,
  change: { readonly user: UserRow; readonly to: string; readonly channel: 'sms' | 'whatsapp' },
): Promise<UserRow> {
  const sent = await sendTokenSms(services, request, { ...change, kind: 'phone_change' })
  return sent.user
}
