import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { requireChannel } from '#api/auth/delivery/send-mail.ts'
import { sendTokenSms } from '#api/auth/delivery/send-sms.ts'
import { authFailure } from '#api/auth/errors.ts'
import { hasVerifiedFactor } from '#api/auth/factors/factors.ts'
import { consumeNonce, preparePassword } from '#api/auth/passwords/change-password.ts'
import { checkPasswordRules } from '#api/auth/passwords/password-rules.ts'
import type { Parsed, UserUpdateBody } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { endSessions, requireLiveSession } from '#api/auth/sessions/sessions.ts'
import { type PkceChallenge, parsePkce } from '#api/auth/sign-in/flow-states.ts'
import { clearOneTimeTokens } from '#api/auth/sign-in/one-time-tokens.ts'
import { applyEmailChange, applyPhoneChange } from '#api/auth/sign-in/redeem.ts'
import { inTransaction } from '#api/auth/store.ts'
import type { OneTimeTokenRow, UserRow } from '#shared/db/schema/auth.ts'

import { parseEmail, parsePhone } from './contact.ts'
import { mergeWithinLimit } from './metadata-limit.ts'
import { presentUser } from './present-user.ts'
import { requestEmailChange } from './send-email-change.ts'
import {
  findUserByContact,
  loadParts,
  lockUser,
  type UserChanges,
  updateUser,
} from './user-store.ts'

type Body = Parsed<typeof UserUpdateBody>

interface Change {
  readonly body: Body
  readonly channel: 'sms' | 'whatsapp'
  readonly pkce: PkceChallenge | undefined
  /** New address or number; undefined when unchanged. */
  readonly email: string | undefined
  readonly phone: string | undefined
  readonly passwordHash: string | undefined
  /** Consumed together with the change. */
  readonly nonce?: OneTimeTokenRow | undefined
}

/** Changes the user of the access token; new addresses and numbers wait for confirmation. */
export async function updateOwnUser(
  services: AuthServices,
  request: UserRequest,
  body: Body,
): Promise<Answer> {
  const change = await parseChange(services, request, body)
  const user = await store(services, request, change)
  return json(presentUser(await loadParts(services.store, user)))
}

async function parseChange(
  services: AuthServices,
  request: UserRequest,
  body: Body,
): Promise<Change> {
  const { user } = request.caller
  const pkce = parsePkce(body)
  const channel = requireChannel(services, body.channel)
  const email = body.email ? parseEmail(body.email) : undefined
  const phone = body.phone ? parsePhone(body.phone) : undefined
  const newEmail = email === user.email ? undefined : email
  const newPhone = phone === user.phone ? undefined : phone
  if (body.password !== undefined) {
    await checkPasswordRules(body.password, {
      config: services.config.password,
      log: services.log,
    })
  }
  checkAppMetadata(services, request, body)
  await checkAssurance(services, request, {
    isSensitive:
      Boolean(body.password) ||
      newEmail !== undefined ||
      newPhone !== undefined ||
      body.app_metadata !== undefined,
  })
  if (user.isAnonymous && body.password && newEmail === undefined && newPhone === undefined) {
    throw authFailure('validation_failed', {
      message: 'Updating password of an anonymous user without an email or phone is not allowed',
      kind: 'unprocessable',
      param: 'password',
    })
  }
  if (newEmail !== undefined) {
    await services.addresses.requireDeliverable({ kind: 'email', email: newEmail })
  }
  await checkTaken(services, { newEmail, newPhone })
  const contacts = { email: newEmail, phone: newPhone }
  if (!body.password) return { body, channel, pkce, ...contacts, passwordHash: undefined }
  const asked = { password: body.password, nonce: body.nonce }
  const { passwordHash, nonce } = await preparePassword(services, request, asked)
  return { body, channel, pkce, ...contacts, passwordHash, nonce }
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
  const { newEmail: email, newPhone: phone } = wanted
  if (email !== undefined && (await findUserByContact(services.store, { kind: 'email', email }))) {
    throw authFailure('email_exists')
  }
  if (phone !== undefined && (await findUserByContact(services.store, { kind: 'phone', phone }))) {
    throw authFailure('phone_exists')
  }
}

// One transaction: a request that a limit refuses changes nothing.
async function store(
  services: AuthServices,
  request: UserRequest,
  change: Change,
): Promise<UserRow> {
  const { user: before, session } = request.caller
  const { body, passwordHash } = change
  const actor = { kind: 'user', user: before } as const
  return inTransaction(services.store, async (tx) => {
    // Metadata is merged under the lock, so that concurrent changes are not lost.
    const user = await lockUser(tx, before.id)
    // The later of two concurrent password changes belongs to a session that has ended.
    await requireLiveSession(tx, session)
    if (change.nonce !== undefined) await consumeNonce(tx, user, change.nonce)
    const changes: UserChanges = {
      ...(body.data && { userMetadata: mergeWithinLimit(user.userMetadata, body.data, 'data') }),
      ...(body.app_metadata && {
        appMetadata: mergeWithinLimit(user.appMetadata, body.app_metadata, 'app_metadata'),
      }),
      ...(passwordHash !== undefined && { passwordHash }),
    }
    const updated = await updateUser(tx, user.id, changes)
    if (passwordHash !== undefined) {
      await endSessions(tx, { userId: user.id, scope: 'others', sessionId: session?.id })
      await clearOneTimeTokens(tx, user.id)
    }
    const stage = { ...services, store: tx }
    const withEmail = await changeEmail(stage, request, { change, user: updated })
    const stored = await changePhone(stage, request, { change, user: withEmail })
    if (passwordHash !== undefined) {
      await record(services, tx, { request, actor, action: 'user_updated_password' })
    }
    await record(services, tx, { request, actor, action: 'user_modified' })
    return stored
  })
}

interface Changing {
  readonly change: Change
  readonly user: UserRow
}

async function changeEmail(
  services: AuthServices,
  request: UserRequest,
  { change, user }: Changing,
): Promise<UserRow> {
  const { email, pkce } = change
  if (email === undefined) return user
  if (user.isAnonymous && services.config.mailer.isAutoconfirm) {
    return applyEmailChange(services.store, { ...user, emailChange: email })
  }
  return requestEmailChange(services, request, { before: user, newEmail: email, pkce })
}

async function changePhone(
  services: AuthServices,
  request: UserRequest,
  { change, user }: Changing,
): Promise<UserRow> {
  const { phone, channel } = change
  if (phone === undefined) return user
  if (services.config.sms.isAutoconfirm) {
    return applyPhoneChange(services.store, { ...user, phoneChange: phone })
  }
  const sms = { user, kind: 'phone_change', to: phone, channel } as const
  const sent = await sendTokenSms(services, request, sms, { phoneChange: phone })
  return sent.user
}

/** The user of the access token. */
export async function user(request: UserRequest): Promise<Answer> {
  const { claims, user: row, parts } = request.caller
  const audiences = [claims.aud ?? []].flat().filter((audience) => audience !== '')
  // Access tokens without an audience are for any.
  const isMeant = audiences.length === 0 || audiences.includes(request.audience)
  if (!isMeant) throw authFailure('unexpected_audience')
  return json(presentUser({ user: row, ...parts }))
}
