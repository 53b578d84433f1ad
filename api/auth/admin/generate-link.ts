import type { AuditAction } from '#api/auth/audit/audit-log.ts'
import { record } from '#api/auth/audit/record.ts'
import { type AdminRequest, type Answer, json } from '#api/auth/context.ts'
import { linkOf, type MailName, mintForMail } from '#api/auth/delivery/send-mail.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { approveNewUser } from '#api/auth/hooks/new-user-hooks.ts'
import { checkPasswordRules } from '#api/auth/passwords/password-rules.ts'
import { chooseRedirect } from '#api/auth/redirects/redirect-url.ts'
import type { GenerateLinkBody, Parsed } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { clearOneTimeTokens, type PendingCredentials } from '#api/auth/sign-in/one-time-tokens.ts'
import { findPendingCredentials } from '#api/auth/sign-up/pending-credentials.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import { createAccount, inviteAccount, isConfirmed } from '#api/auth/users/accounts.ts'
import { parseEmail } from '#api/auth/users/contact.ts'
import { mergeMetadata, presentUser } from '#api/auth/users/present-user.ts'
import { EMAIL_CHANGE_KINDS } from '#api/auth/users/send-email-change.ts'
import {
  findUserByContact,
  loadParts,
  lockUser,
  type SentColumn,
  type UserChanges,
  updateUser,
} from '#api/auth/users/user-store.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'

type Body = Parsed<typeof GenerateLinkBody>

interface LinkRow {
  readonly mail: MailName
  readonly linkType: string
  readonly column: SentColumn
  /** Its name in the audit log. */
  readonly action: AuditAction
}

const EMAIL_CHANGE = {
  linkType: 'email_change',
  column: 'emailChangeSentAt',
  action: 'user_modified',
} as const
const RECOVERY = { column: 'recoverySentAt', action: 'user_recovery_requested' } as const

/** The token and mail of each link type. */
const TYPES = {
  signup: {
    mail: 'confirmation',
    linkType: 'signup',
    column: 'confirmationSentAt',
    action: 'user_confirmation_requested',
  },
  invite: {
    mail: 'invite',
    linkType: 'invite',
    column: 'confirmationSentAt',
    action: 'user_invited',
  },
  magiclink: { mail: 'magicLink', linkType: 'magiclink', ...RECOVERY },
  recovery: { mail: 'recovery', linkType: 'recovery', ...RECOVERY },
  email_change_current: { mail: 'emailChangeCurrent', ...EMAIL_CHANGE },
  email_change_new: { mail: 'emailChangeNew', ...EMAIL_CHANGE },
} as const satisfies Record<string, LinkRow>

type LinkType = keyof typeof TYPES

interface Wanted {
  readonly type: LinkType
  readonly email: string
  readonly newEmail: string | undefined
  readonly body: Body
}

/** Creates the link of a mail without sending it: the caller delivers it by other means. */
export async function generateLink(
  services: AuthServices,
  request: AdminRequest,
  body: Body,
): Promise<Answer> {
  const wanted = parse(body)
  const { user, type, credentials } = await prepareUser(services, request, wanted)
  const { mail, linkType, column, action } = TYPES[type]
  const to = type === 'email_change_new' ? (wanted.newEmail as string) : wanted.email
  const { minted, sent } = await inTransaction(services.store, async (store) => {
    const proposal = await propose(store, user.id, wanted.newEmail)
    const changes = { ...proposal, [column]: store.now() }
    const stage = { ...services, store }
    // The link signs its bearer in as the user.
    await record(services, store, {
      request,
      actor: { kind: 'admin', role: request.caller.role },
      action,
      traits: { user_id: user.id, user_email: wanted.email, link_type: type },
    })
    return {
      minted: await mintForMail(stage, {
        user,
        name: mail,
        to,
        credentials,
        changeTo: wanted.newEmail,
      }),
      sent: await updateUser(store, user.id, changes),
    }
  })
  const redirectTo = chooseRedirect([body.redirect_to || request.redirectTo], {
    siteUrl: services.config.site.url,
    uriAllowList: services.config.site.uriAllowList,
  })
  const place = { externalUrl: request.externalUrl, redirectTo }
  const link = linkOf(services, place, { name: mail, linkToken: minted.linkToken, type: linkType })
  return json({
    ...presentUser(await loadParts(services.store, withPending(sent, credentials))),
    action_link: link,
    email_otp: minted.code,
    hashed_token: minted.linkToken,
    verification_type: type,
    redirect_to: redirectTo,
  })
}

function parse(body: Body): Wanted {
  const { type } = body
  if (type === undefined || !Object.hasOwn(TYPES, type)) {
    throw invalid(`Invalid email action link type requested: ${(type ?? '').slice(0, 64)}`, 'type')
  }
  const email = parseEmail(body.email ?? '')
  const isChange = type === 'email_change_current' || type === 'email_change_new'
  const newEmail = isChange ? parseEmail(body.new_email ?? '') : undefined
  return { type: type as LinkType, email, newEmail, body }
}

interface Prepared {
  readonly user: UserRow
  readonly type: LinkType
  /** The credentials that a sign-up link sets. */
  readonly credentials?: PendingCredentials
}

function withPending(user: UserRow, credentials: PendingCredentials | undefined): UserRow {
  const userMetadata = mergeMetadata(user.userMetadata, credentials?.userMetadata)
  return { ...user, userMetadata }
}

async function prepareUser(
  services: AuthServices,
  request: AdminRequest,
  wanted: Wanted,
): Promise<Prepared> {
  const contact = { kind: 'email', email: wanted.email } as const
  const known = await findUserByContact(services.store, contact)
  // A magic link for an unknown address is a sign-up.
  const type = wanted.type === 'magiclink' && known === undefined ? 'signup' : wanted.type
  switch (type) {
    case 'magiclink':
      return { user: known as UserRow, type }
    case 'recovery':
      if (known === undefined) throw notFound()
      return { user: known, type }
    case 'email_change_current':
    case 'email_change_new':
      if (known === undefined) throw notFound()
      await checkFree(services, wanted.newEmail as string)
      return { user: known, type }
    case 'signup':
    case 'invite':
      if (known !== undefined && isConfirmed(known, 'email')) throw authFailure('email_exists')
      return { type, ...(await prepareNewUser(services, request, { type, known, wanted })) }
  }
}

function notFound(): Error {
  const message = 'User with this email not found'
  return authFailure('user_not_found', { message, kind: 'notFound' })
}

async function checkFree(services: AuthServices, email: string): Promise<void> {
  const owner = await findUserByContact(services.store, { kind: 'email', email })
  if (owner !== undefined) throw authFailure('email_exists')
}

// Links of an earlier change must not confirm this one.
async function propose(
  store: Store,
  userId: string,
  newEmail: string | undefined,
): Promise<UserChanges> {
  const user = await lockUser(store, userId)
  if (newEmail === undefined || user.emailChange === newEmail) return {}
  await clearOneTimeTokens(store, userId, EMAIL_CHANGE_KINDS)
  return { emailChange: newEmail, emailChangeAgreed: 0 }
}

async function prepareNewUser(
  services: AuthServices,
  request: AdminRequest,
  making: {
    readonly type: 'signup' | 'invite'
    readonly known: UserRow | undefined
    readonly wanted: Wanted
  },
): Promise<Omit<Prepared, 'type'>> {
  const { type, known, wanted } = making
  const { body, email } = wanted
  const passwordHash = type === 'signup' ? await hashPassword(services, wanted, known) : undefined
  const candidate = { provider: 'email', email, userMetadata: body.data }
  const id = known === undefined ? await approveNewUser(services, request, candidate) : undefined
  const user = await inTransaction(services.store, async (store) =>
    type === 'invite'
      ? inviteAccount(services, store, { id, email, known, data: body.data, request })
      : (known ?? makeSignup(services, store, { id, email, request })),
  )
  if (user === undefined) throw authFailure('email_exists')
  if (type === 'invite') return { user }
  const earlier = await findPendingCredentials(services.store, user.id, 'email')
  const userMetadata = mergeMetadata(earlier?.userMetadata ?? {}, body.data)
  return {
    user,
    credentials: { passwordHash: passwordHash ?? earlier?.passwordHash ?? undefined, userMetadata },
  }
}

function makeSignup(
  services: AuthServices,
  store: Store,
  signup: {
    readonly id: string | undefined
    readonly email: string
    readonly request: AdminRequest
  },
): Promise<UserRow | undefined> {
  const { id, email, request } = signup
  const account = { id, contact: { kind: 'email', email }, keepsIdentityClaims: false } as const
  return createAccount(services, store, { account, request })
}

async function hashPassword(
  services: AuthServices,
  { type, body }: Wanted,
  known: UserRow | undefined,
): Promise<string | undefined> {
  if (!body.password) {
    const isNeeded = type === 'signup' && known === undefined
    if (isNeeded) throw invalid('Signup requires a valid password', 'password')
    return undefined
  }
  await checkPasswordRules(body.password, { config: services.config.password, log: services.log })
  return services.passwords.hash(body.password)
}
