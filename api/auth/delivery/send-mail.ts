import type { AuthRequest } from '#api/auth/context.ts'
import { hasWhatsapp } from '#api/auth/delivery/sms.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import type { Mail } from '#api/auth/ports.ts'
import { tooSoon } from '#api/auth/rate-limits.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import { type PkceChallenge, startFlow } from '#api/auth/sign-in/flow-states.ts'
import {
  type MintedToken,
  mintOneTimeToken,
  type PendingCredentials,
} from '#api/auth/sign-in/one-time-tokens.ts'
import { type Contact, isAuthorizedAddress } from '#api/auth/users/contact.ts'
import { claimSend, type SentColumn, type UserChanges } from '#api/auth/users/user-store.ts'
import type { MailKind } from '#shared/config/auth-mail.ts'
import type { OneTimeTokenKind, UserRow } from '#shared/db/schema/auth.ts'

/** The token kind and the limits of each mail. */
const MAILS = {
  confirmation: mail('confirmation', 'confirmation', 'signup', 'confirmationSentAt'),
  invite: mail('invite', 'confirmation', 'invite', 'confirmationSentAt'),
  // Sent to users with an account: the link signs them in.
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

/** A mail to a user with a one-time token. */
export interface TokenMail {
  readonly user: UserRow
  readonly name: MailName
  readonly to: string
  readonly pkce?: PkceChallenge | undefined
  /** False for mails that an administrator requests. */
  readonly isPaced?: boolean
  /** Template variables besides the user's metadata. */
  readonly data?: Readonly<Record<string, unknown>>
  /** The new address of a change. */
  readonly changeTo?: string | undefined
  /** Credentials that an unconfirmed user receives with the token. */
  readonly credentials?: PendingCredentials | 'kept' | undefined
  /** The token for the current address, if a hook receives both in one call. */
  readonly currentToken?: MintedToken
}

/**
 * Writes a mail with a link and a code to the outbox: at most one per gap and user, within the
 * server's hourly limit.
 */
export function sendTokenMail(
  services: AuthServices,
  request: AuthRequest,
  token: TokenMail,
): Promise<UserRow> {
  return inOneTransaction(services, async (tx) => {
    const claimed = await claimMail(tx, token)
    await mintAndSend(tx, request, { ...token, user: claimed })
    return claimed
  })
}

/** Records that a mail is being sent and why. Throws if it may not be sent. */
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

/**
 * Creates the token of a permitted mail, which counts towards the hourly limit, and writes the
 * mail.
 */
async function mintAndSend(
  services: AuthServices,
  request: AuthRequest,
  token: TokenMail,
): Promise<void> {
  if (!services.config.mailer.isAutoconfirm) await services.limits.takeSend('email', request)
  const minted = await mintForMail(services, token)
  const { user, name, to, currentToken } = token
  const { kind, tokenKind, linkType } = MAILS[name]
  const { externalUrl } = request
  const mail: Mail = {
    kind,
    to,
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
    forHook: { linkType, externalUrl, ...(currentToken && { currentToken }) },
  }
  await services.outbox.write(services.store, {
    userId: user.id,
    purpose: tokenKind,
    message: { channel: 'email', mail },
    expiresAt: minted.expiresAt,
  })
}

/**
 * Writes the mails of a change of address. A send-email hook receives the tokens of both in one
 * call.
 */
export async function mintAndSendChange(
  services: AuthServices,
  request: AuthRequest,
  mails: { readonly toNew: TokenMail; readonly toCurrent: TokenMail | undefined },
): Promise<void> {
  const { toNew, toCurrent } = mails
  if (toCurrent !== undefined && services.hooks.isEnabled('sendEmail')) {
    const currentToken = await mintForMail(services, toCurrent)
    return mintAndSend(services, request, { ...toNew, currentToken })
  }
  await mintAndSend(services, request, toNew)
  if (toCurrent !== undefined) await mintAndSend(services, request, toCurrent)
}

/**
 * Commits a row without a recipient, which counts towards the hourly limit, so that the answer for
 * an unknown address waits for the same write and leaves the same rest as that for a known one.
 */
export async function sendNothing(
  services: AuthServices,
  request: AuthRequest,
  contact: Contact,
): Promise<void> {
  const channel = limitedChannel(services, contact)
  if (channel !== undefined) await services.limits.takeSend(channel, request)
  await services.outbox.write(services.store, {
    userId: null,
    purpose: 'none',
    message: { channel: 'none' },
    expiresAt: new Date(services.clock.now() + NOTHING_TTL_MS),
  })
}

const NOTHING_TTL_MS = 60_000

/** Creates the one-time token of a mail, and the PKCE flow that the link continues. */
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
  // Clients search for the plain URL, so only characters with a meaning in queries are encoded.
  const redirectTo = /[&=#%+]/.test(request.redirectTo)
    ? encodeURIComponent(request.redirectTo)
    : request.redirectTo
  const separator = url.search === '' ? '?' : '&'
  return `${url.href}${separator}token=${link.linkToken}&type=${link.type ?? linkType}&redirect_to=${redirectTo}`
}

/** Throws if the hourly limit permits no message to the contact. */
export async function checkSendLimit(
  services: AuthServices,
  request: AuthRequest,
  contact: Contact,
): Promise<void> {
  const channel = limitedChannel(services, contact)
  if (channel !== undefined) await services.limits.checkSend(channel, request)
}

/** The channel whose hourly limit counts messages to a contact; undefined if none does. */
function limitedChannel(services: AuthServices, contact: Contact): 'email' | 'sms' | undefined {
  const { mailer, sms } = services.config
  if (contact.kind === 'email') return mailer.isAutoconfirm ? undefined : 'email'
  const isTestNumber = services.sms.testOtp(contact.phone) !== undefined
  return sms.isAutoconfirm || isTestNumber ? undefined : 'sms'
}

/** Throws unless users may sign up or in by email. */
export function requireEmailEnabled(
  services: AuthServices,
  kind: 'invalidRequest' | 'unprocessable',
): void {
  if (services.config.signup.isEmailEnabled) return
  throw authFailure('email_provider_disabled', { message: 'Email logins are disabled', kind })
}

/** Throws unless a gateway can serve the channel of a body. */
export function requireChannel(
  services: AuthServices,
  channel: string | undefined,
): 'sms' | 'whatsapp' {
  if (channel === undefined || channel === '' || channel === 'sms') return 'sms'
  if (channel === 'whatsapp' && hasWhatsapp(services.config.sms.gateway)) return 'whatsapp'
  throw invalid(
    "Invalid channel, supported values are 'sms' or 'whatsapp'. 'whatsapp' is only supported if Twilio or Twilio Verify is used as the provider.",
    'channel',
  )
}
