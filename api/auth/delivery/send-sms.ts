import type { AuditAction } from '#api/auth/audit/audit-log.ts'
import { record } from '#api/auth/audit/record.ts'
import type { AuthRequest } from '#api/auth/context.ts'
import { tooSoon } from '#api/auth/rate-limits.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import {
  type MintedToken,
  mintOneTimeToken,
  type PendingCredentials,
} from '#api/auth/sign-in/one-time-tokens.ts'
import { isConfirmed } from '#api/auth/users/accounts.ts'
import type { Contact } from '#api/auth/users/contact.ts'
import { claimSend, type SentColumn, type UserChanges } from '#api/auth/users/user-store.ts'
import type { OneTimeTokenKind, UserRow } from '#shared/db/schema/auth.ts'

type SmsKind = Extract<OneTimeTokenKind, 'phone_confirmation' | 'phone_change' | 'reauthentication'>

const COLUMNS: Readonly<Record<SmsKind, SentColumn>> = {
  phone_confirmation: 'confirmationSentAt',
  phone_change: 'phoneChangeSentAt',
  reauthentication: 'reauthenticationSentAt',
}

/** A text message to a user with a code. */
interface TokenSms {
  readonly user: UserRow
  readonly kind: SmsKind
  readonly to: string
  readonly channel: 'sms' | 'whatsapp'
  /** Credentials that an unconfirmed user receives with the code. */
  readonly credentials?: PendingCredentials | 'kept' | undefined
}

/**
 * Writes a code to the outbox, together with the given changes in one transaction. Returns the
 * message's id.
 */
export function sendTokenSms(
  services: AuthServices,
  request: AuthRequest,
  token: TokenSms,
  changes?: UserChanges,
): Promise<{ user: UserRow; messageId: string }> {
  return inOneTransaction(services, async (tx) => {
    const { kind, channel, to } = token
    const fixedCode = tx.sms.testOtp(to)
    if (fixedCode === undefined) tx.sms.requireGateway(channel)
    const user = await claimSms(tx, token, changes)
    const isCounted = !tx.config.sms.isAutoconfirm && fixedCode === undefined
    if (isCounted) await tx.limits.takeSend('sms', request)
    const minted = await mintForSms(tx, token, fixedCode)
    const messageId =
      fixedCode === undefined ? await write(tx, { ...token, user }, minted) : TEST_MESSAGE_ID
    await record(tx, tx.store, {
      request,
      actor: { kind: 'user', user },
      action: actionOf(kind, user),
      traits: { channel },
    })
    return { user, messageId }
  })
}

function actionOf(kind: SmsKind, user: UserRow): AuditAction {
  if (kind === 'reauthentication') return 'user_reauthenticate_requested'
  const isSignIn = kind === 'phone_confirmation' && isConfirmed(user, 'phone')
  return isSignIn ? 'user_recovery_requested' : 'user_confirmation_requested'
}

async function claimSms(
  services: AuthServices,
  token: TokenSms,
  changes: UserChanges | undefined,
): Promise<UserRow> {
  const claim = await claimSend(services.store, {
    userId: token.user.id,
    column: COLUMNS[token.kind],
    gapSeconds: services.config.sms.gapSeconds,
    changes,
  })
  if ('waitSeconds' in claim) throw tooSoon('sms', claim.waitSeconds)
  return claim.user
}

const TEST_MESSAGE_ID = 'test-otp'

// How long codes of Twilio Verify are valid by default; its own settings may shorten it.
const GATEWAY_CODE_TTL_SECONDS = 600

/** Asks the gateway about a code that it created; undefined if this server creates the codes. */
export function gatewayCheck(
  { sms }: Pick<AuthServices, 'sms'>,
  contact: Contact,
  code: string,
): (() => Promise<boolean>) | undefined {
  const { isRightCode } = sms
  if (isRightCode === undefined || contact.kind !== 'phone') return undefined
  if (sms.testOtp(contact.phone) !== undefined) return undefined
  return () => isRightCode(contact.phone, code)
}

function mintForSms(
  services: AuthServices,
  token: TokenSms,
  fixedCode: string | undefined,
): Promise<MintedToken> {
  const { sms, jwt } = services.config
  return mintOneTimeToken(services.store, {
    userId: token.user.id,
    kind: token.kind,
    contact: token.to,
    changeTo: token.kind === 'phone_change' ? token.to : undefined,
    credentials: token.credentials,
    ttlSeconds: services.sms.isRightCode ? GATEWAY_CODE_TTL_SECONDS : sms.otpTtlSeconds,
    codeLength: sms.otpLength,
    pepper: jwt.secret,
    fixedCode,
  })
}

function write(services: AuthServices, token: TokenSms, minted: MintedToken): Promise<string> {
  const { to, channel, kind, user } = token
  const { code: otp, expiresAt } = minted
  const message = renderCode(services.config.sms.template, otp)
  return services.outbox.write(services.store, {
    userId: user.id,
    purpose: kind,
    message: { channel: 'sms', sms: { to, message, channel, otp } },
    expiresAt,
  })
}

/** Inserts the code into the text of a message. */
export function renderCode(template: string, code: string): string {
  return template.replace(/\{\{\s*\.Code\s*\}\}/g, code)
}
