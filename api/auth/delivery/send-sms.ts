import type { OneTimeTokenKind, UserRow } from '#shared/db/schema/auth.ts'

import type { AuthRequest } from '#api/auth/context.ts'
import {
  consumeOneTimeToken,
  mintOneTimeToken,
  type MintedToken,
  type PendingCredentials,
} from '#api/auth/sign-in/one-time-tokens.ts'
import { claimSend, updateUser, type SentColumn, type UserChanges } from '#api/auth/users/users.ts'
import { tooSoon } from '#api/auth/rate-limits.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { record } from '#api/auth/audit/record.ts'

type SmsKind = Extract<OneTimeTokenKind, 'phone_confirmation' | 'phone_change' | 'reauthentication'>

const COLUMNS: Readonly<Record<SmsKind, SentColumn>> = {
  phone_confirmation: 'confirmationSentAt',
  phone_change: 'phoneChangeSentAt',
  reauthentication: 'reauthenticationSentAt',
}

/** A text message to a user that carries a code. */
interface TokenSms {
  readonly user: UserRow
  readonly kind: SmsKind
  readonly to: string
  readonly channel: 'sms' | 'whatsapp'
  /** Credentials that an unconfirmed user receives with the code. */
  readonly credentials?: PendingCredentials | 'kept' | undefined
}

/** Sends a code by phone, like `sendTokenMail` by mail. Answers the gateway's message id. */
export async function sendTokenSms(
  services: AuthServices,
  request: AuthRequest,
  token: TokenSms,
): Promise<{ user: UserRow; messageId: string }> {
  const user = await claimSms(services, token)
  return { user, messageId: await sendClaimedSms(services, request, token) }
}

/** Notes that a code is sent now, with what it is about. Throws unless it may be. */
export async function claimSms(
  services: AuthServices,
  token: TokenSms,
  changes?: UserChanges,
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

/** A message whose code is made and that is yet to be sent. */
export interface MintedSms extends TokenSms {
  readonly minted: MintedToken
}

/**
 * Makes the code of a message that counts towards the hour's limit of the server. Called in the
 * transaction that claims a change, so that the code of an older change is void at the same moment.
 */
export async function mintSmsWithinLimit(
  services: AuthServices,
  token: TokenSms,
): Promise<MintedSms> {
  const fixedCode = services.sms.testOtp(token.to)
  const isCounted = !services.config.sms.isAutoconfirm && fixedCode === undefined
  if (isCounted) await services.limits.takeSend('sms')
  return { ...token, minted: await mintForSms(services, token, fixedCode) }
}

/**
 * Sends a code that was claimed, and answers the gateway's message id. When it cannot be sent, the
 * user of `token` is what it was before the claim.
 */
export async function sendClaimedSms(
  services: AuthServices,
  request: AuthRequest,
  token: TokenSms | MintedSms,
): Promise<string> {
  const { user, kind } = token
  let minted = 'minted' in token ? token.minted : undefined
  try {
    minted ??= (await mintSmsWithinLimit(services, token)).minted
    const isTestNumber = services.sms.testOtp(token.to) !== undefined
    const messageId = isTestNumber ? TEST_MESSAGE_ID : await send(services, token, minted)
    await record(services, services.store, {
      request,
      actor: { kind: 'user', user },
      action:
        kind === 'reauthentication'
          ? 'user_reauthenticate_requested'
          : 'user_confirmation_requested',
      traits: { channel: token.channel },
    })
    return messageId
  } catch (error) {
    await releaseSms(services, token)
    if (minted !== undefined) await consumeOneTimeToken(services.store, minted.id)
    throw error
  }
}

/** Takes a claim back: the user of `token` is what it was before, and can ask again at once. */
export async function releaseSms(services: AuthServices, { user, kind }: TokenSms): Promise<void> {
  const column = COLUMNS[kind]
  await updateUser(services.store, user.id, {
    [column]: user[column],
    ...(kind === 'phone_change' && { phoneChange: user.phoneChange }),
  })
}

const TEST_MESSAGE_ID = 'test-otp'

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
    ttlSeconds: sms.otpTtlSeconds,
    codeLength: sms.otpLength,
    pepper: jwt.secret,
    fixedCode,
  })
}

async function send(services: AuthServices, token: TokenSms, minted: MintedToken): Promise<string> {
  const { to, channel } = token
  const message = renderCode(services.config.sms.template, minted.code)
  const { messageId } = await services.sms.send({ to, message, channel, otp: minted.code })
  return messageId
}

/** Puts the code into the text of a message. */
export function renderCode(template: string, code: string): string {
  return template.replace(/\{\{\s*\.Code\s*\}\}/g, code)
}
