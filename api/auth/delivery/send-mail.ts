import type { MailKind } from '#shared/config/auth-mail.ts'
import type { OneTimeTokenKind, UserRow } from '#shared/db/schema/auth.ts'
import { failure, ServiceError } from '#shared/errors.ts'

import type { AuthRequest } from '#api/auth/context.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { isAuthorizedAddress, type Contact } from '#api/auth/users/contact.ts'
import { startFlow, type PkceChallenge } from '#api/auth/sign-in/flow-states.ts'
import {
  consumeOneTimeToken,
  mintOneTimeToken,
  type MintedToken,
  type PendingCredentials,
} from '#api/auth/sign-in/one-time-tokens.ts'
import { claimSend, updateUser, type SentColumn, type UserChanges } from '#api/auth/users/users.ts'
import { tooSoon } from '#api/auth/rate-limits.ts'
import type { AuthServices } from '#api/auth/services.ts'

/** The token kind and the limits of each mail. */
const MAILS = {
  confirmation: mail('confirmation', 'confirmation', 'signup', 'confirmationSentAt'),
  invite: mail('invite', 'confirmation', 'invite', 'confirmationSentAt'),
  // To who has an account: the link signs them in.
  invitation: mail('invite', 'recovery', 'magiclink', 'recoverySentAt'),
  recovery: mail('recovery', 'recovery', 'recovery', 'recoverySentAt'),
  magicLink: mail('magicLink', 'recovery', 'magiclink', 'recoverySentAt'),
  emailChangeNew: mail('emailChange', 'email_change_new', 'email_change', 'emailChangeSentAt'),
  emailChangeCurrent: mail(
    'emailChange',
    'email_change_current',
    'email_change',
    'emailChangeSentAt',
  ),
  reauthentication: mail(
    'reauthentication',
    'reauthentication',
    'reauthentication',
    'reauthenticationSentAt',
  ),
} as const

/** The name of a mail in the table. */
export type MailName = keyof typeof MAILS

interface MailRow {
  readonly kind: MailKind
  readonly tokenKind: OneTimeTokenKind
  /** `type` in the link. */
  readonly linkType: string
  readonly column: SentColumn
}

function mail(
  kind: MailKind,
  tokenKind: OneTimeTokenKind,
  linkType: string,
  column: SentColumn,
): MailRow {
  return { kind, tokenKind, linkType, column }
}

/** A mail to a user that carries a one-time token. */
export interface TokenMail {
  readonly user: UserRow
  readonly name: MailName
  readonly to: string
  readonly pkce?: PkceChallenge | undefined
  /** False for mails that an administrator asks for. */
  readonly isPaced?: boolean
  /** Template variables besides the user's metadata. */
  readonly data?: Readonly<Record<string, unknown>>
  /** The address that the user changes to. */
  readonly changeTo?: string | undefined
  /** Credentials that an unconfirmed user receives with the token. */
  readonly credentials?: PendingCredentials | 'kept' | undefined
}

/** A mail whose token is made and that is yet to be sent. */
export interface MintedMail extends TokenMail {
  readonly minted: MintedToken
}

/**
 * Sends a mail with a link and a code: at most one per gap and user, within the server's hourly
 * limit. When it cannot be sent, all changes are reverted, so that the user can ask again.
 */
export async function sendTokenMail(
  services: AuthServices,
  request: AuthRequest,
  token: TokenMail,
): Promise<UserRow> {
  const { user } = token
  const { column } = MAILS[token.name]
  const claimed = await claimMail(services, token)
  const sending: { minted?: MintedToken } = {}
  try {
    await mintAndSend(services, request, { ...token, user: claimed }, sending)
    return claimed
  } catch (error) {
    await updateUser(services.store, user.id, { [column]: user[column] })
    if (sending.minted !== undefined) {
      await consumeOneTimeToken(services.store, sending.minted.id)
    }
    throw error
  }
}

/** Notes that a mail is sent now, with what it is about. Throws unless it may be. */
export async function claimMail(
  services: AuthServices,
  token: TokenMail,
  changes?: UserChanges,
): Promise<UserRow> {
  requireAuthorized(services, token.to)
  const { column, kind } = MAILS[token.name]
  const { confirmationGapSeconds, linkGapSeconds } = services.config.smtp
  const gapSeconds = kind === 'confirmation' ? confirmationGapSeconds : linkGapSeconds
  const claim = await claimSend(services.store, {
    userId: token.user.id,
    column,
    gapSeconds: token.isPaced === false ? 0 : gapSeconds,
    changes,
  })
  if ('waitSeconds' in claim) throw tooSoon('email', claim.waitSeconds)
  return claim.user
}

/** Throws unless mail may go to this address. */
export function requireAuthorized(services: AuthServices, address: string): void {
  if (isAuthorizedAddress(address, services.config.mailer.authorizedAddresses)) return
  throw authFailure('email_address_not_authorized', {
    message: `Email address "${address}" cannot be used as it is not authorized`,
  })
}

/** Mints the token and sends a permitted mail; `sending` records what to revert. */
export async function mintAndSend(
  services: AuthServices,
  request: AuthRequest,
  token: TokenMail,
  sending: { minted?: MintedToken } = {},
): Promise<void> {
  const minted = await mintWithinLimit(services, token)
  sending.minted = minted
  await deliver(services, request, { ...token, minted })
}

/** Makes the one-time token of a mail that counts towards the hour's limit of the server. */
export async function mintWithinLimit(
  services: AuthServices,
  token: TokenMail,
): Promise<MintedToken> {
  if (!services.config.mailer.isAutoconfirm) await services.limits.takeSend('email')
  return mintForMail(services, token)
}

/** Makes the one-time token of a mail, and the PKCE flow that it ends in. */
export async function mintForMail(
  services: AuthServices,
  token: Pick<TokenMail, 'user' | 'name' | 'to' | 'pkce' | 'changeTo' | 'credentials'>,
): Promise<MintedToken> {
  const { mailer, jwt } = services.config
  const { tokenKind, linkType } = MAILS[token.name]
  const flow =
    token.pkce &&
    (await startFlow(services.store, {
      provider: 'email',
      authenticationMethod: linkType === 'signup' ? 'email/signup' : linkType,
      pkce: token.pkce,
      userId: token.user.id,
    }))
  return mintOneTimeToken(services.store, {
    userId: token.user.id,
    kind: tokenKind,
    contact: token.to,
    changeTo: token.changeTo,
    credentials: token.credentials,
    ttlSeconds: mailer.otpTtlSeconds,
    codeLength: mailer.otpLength,
    pepper: jwt.secret,
    flowStateId: flow?.id,
  })
}

/** The link of a mail. */
export function linkOf(
  services: AuthServices,
  request: Pick<AuthRequest, 'externalUrl' | 'redirectTo'>,
  link: { readonly name: MailName; readonly linkToken: string; readonly type?: string },
): string {
  const { kind, linkType } = MAILS[link.name]
  const url = new URL(services.config.mailer.urlPaths[kind], request.externalUrl)
  // Clients search for the plain URL; only characters with a meaning in queries are encoded.
  const redirectTo = /[&=#%+]/.test(request.redirectTo)
    ? encodeURIComponent(request.redirectTo)
    : request.redirectTo
  const separator = url.search === '' ? '?' : '&'
  return `${url.href}${separator}token=${link.linkToken}&type=${link.type ?? linkType}&redirect_to=${redirectTo}`
}

/** Sends a mail whose token is made. */
export async function deliver(
  services: AuthServices,
  request: AuthRequest,
  token: MintedMail,
): Promise<void> {
  const { user, name, minted } = token
  const { kind } = MAILS[name]
  try {
    await services.mailer.send({
      kind,
      to: token.to,
      variables: {
        siteUrl: services.config.site.url,
        email: user.email ?? '',
        ...(user.emailChange !== null && { newEmail: user.emailChange }),
        confirmationUrl: linkOf(services, request, { name, linkToken: minted.linkToken }),
        token: minted.code,
        tokenHash: minted.linkToken,
        redirectTo: request.redirectTo,
        data: { ...user.userMetadata, ...minted.userMetadata, ...token.data },
      },
    })
  } catch (error) {
    if (error instanceof ServiceError && error.kind !== 'internal') throw error
    throw failure.internal(FAILURES[kind], { code: 'unexpected_failure', cause: error })
  }
}

const FAILURES: Readonly<Record<MailKind, string>> = {
  confirmation: 'Error sending confirmation email',
  invite: 'Error sending invite email',
  recovery: 'Error sending recovery email',
  magicLink: 'Error sending magic link email',
  emailChange: 'Error sending email change email',
  reauthentication: 'Error sending reauthentication email',
}

/** Throws when no message can be sent to the contact within the hour's limit of the server. */
export async function checkSendLimit(services: AuthServices, contact: Contact): Promise<void> {
  const { mailer, sms } = services.config
  if (contact.kind === 'email') {
    if (!mailer.isAutoconfirm) await services.limits.checkSend('email')
    return
  }
  const isTestNumber = services.sms.testOtp(contact.phone) !== undefined
  if (!sms.isAutoconfirm && !isTestNumber) await services.limits.checkSend('sms')
}

/** Throws unless users may sign up or in by email. */
export function requireEmailEnabled(services: AuthServices, message: string): void {
  if (services.config.signup.isEmailEnabled) return
  throw authFailure('email_provider_disabled', { message, kind: 'unprocessable' })
}

/** Throws unless the channel of a body is one that gateways have. */
export function requireChannel(
  services: AuthServices,
  channel: string | undefined,
): 'sms' | 'whatsapp' {
  if (channel === undefined || channel === '' || channel === 'sms') return 'sms'
  if (channel === 'whatsapp' && services.config.sms.gateway === 'twilio') return 'whatsapp'
  throw invalid(
    "Invalid channel, supported values are 'sms' or 'whatsapp'. 'whatsapp' is only supported if Twilio or Twilio Verify is used as the provider.",
    'channel',
  )
}
