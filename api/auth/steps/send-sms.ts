import type { OneTimeTokenKind, UserRow } from '#shared/db/schema/auth.ts'

import type { AuthRequest } from '../context.ts'
import {
  consumeOneTimeToken,
  mintOneTimeToken,
  type MintedToken,
} from '../identity/one-time-tokens.ts'
import { claimSend, updateUser, type SentColumn } from '../identity/users.ts'
import { tooSoon } from '../rate-limits.ts'
import type { AuthServices } from '../services.ts'
import { record } from './record.ts'

type SmsKind = Extract<OneTimeTokenKind, 'phone_confirmation' | 'phone_change' | 'reauthentication'>

const COLUMNS: Readonly<Record<SmsKind, SentColumn>> = {
  phone_confirmation: 'confirmationSentAt',
  phone_change: 'phoneChangeSentAt',
  reauthentication: 'reauthenticationSentAt',
}

/** A text message to a user that carries a code. */
export interface TokenSms {
  readonly user: UserRow
  readonly kind: SmsKind
  readonly to: string
  readonly channel: 'sms' | 'whatsapp'
}

/** Sends a code by phone, like `sendTokenMail` by mail. Answers the gateway's message id. */
export async function sendTokenSms(
  services: AuthServices,
  request: AuthRequest,
  token: TokenSms,
): Promise<{ user: UserRow; messageId: string }> {
  const { sms } = services.config
  const { user, kind } = token
  const column = COLUMNS[kind]
  const claim = await claimSend(services.store, {
    userId: user.id,
    column,
    gapSeconds: sms.gapSeconds,
  })
  if ('waitSeconds' in claim) throw tooSoon('sms', claim.waitSeconds)
  let minted: MintedToken | undefined
  try {
    const fixedCode = services.sms.testOtp(token.to)
    if (!sms.isAutoconfirm && fixedCode === undefined) await services.limits.takeSend('sms')
    minted = await mintForSms(services, token, fixedCode)
    const messageId =
      fixedCode === undefined ? await send(services, token, minted) : TEST_MESSAGE_ID
    await record(services, services.store, {
      request,
      actor: { kind: 'user', user: claim.user },
      action:
        kind === 'reauthentication'
          ? 'user_reauthenticate_requested'
          : 'user_confirmation_requested',
      traits: { channel: token.channel },
    })
    return { user: claim.user, messageId }
  } catch (error) {
    await updateUser(services.store, user.id, { [column]: user[column] })
    if (minted !== undefined) await consumeOneTimeToken(services.store, minted.id)
    throw error
  }
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
