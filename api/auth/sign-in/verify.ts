import { randomUUID } from 'node:crypto'

import { type Answer, type AuthRequest, json, redirect } from '#api/auth/context.ts'
import { gatewayCheck } from '#api/auth/delivery/send-sms.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { redirectWithError } from '#api/auth/external/redirect-with-error.ts'
import { checkPasswordRules } from '#api/auth/passwords/password-rules.ts'
import { withFragment, withQuery } from '#api/auth/redirects/redirect-url.ts'
import type { Parsed, VerifyBody, VerifyQuery } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { tokenFragment, tokenResponse } from '#api/auth/sessions/start-session.ts'
import { type Contact, nameOf, parseContact } from '#api/auth/users/contact.ts'
import { findUserByContact, findUsersChangingTo } from '#api/auth/users/user-store.ts'
import type { OneTimeTokenRow, UserRow } from '#shared/db/schema/auth.ts'
import type { ServiceError } from '#shared/errors.ts'

import { countLive, findByCode, findByLink, PKCE_PREFIX } from './one-time-tokens.ts'
import { KINDS_BY_TYPE, redeem } from './redeem.ts'

const BAD_CODE = 'Token has expired or is invalid'
const BAD_LINK = 'Email link is invalid or has expired'
const HALFWAY = 'Confirmation link accepted. Please proceed to confirm link sent to the other email'

/** Redeems a typed code, or the token of a link that another server handles. */
export async function verify(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof VerifyBody>,
): Promise<Answer> {
  const kinds = kindsOf(body.type)
  const guess = parseGuess(body)
  const passwordHash = await hashNewPassword(services, body.password)
  const token =
    guess.kind === 'link'
      ? await findByLink(services.store, guess.linkToken, kinds)
      : await services.guesses.judge(
          { kind: 'code', account: nameOf(guess.contact), network: request.network },
          () => findTyped(services, { kinds, type: body.type as string, ...guess }),
          (found) => found !== undefined,
        )
  const failureMessage = guess.kind === 'link' ? BAD_LINK : BAD_CODE
  if (token === undefined) throw authFailure('otp_expired', { message: failureMessage })
  const redemption = { token, endsInCode: false, passwordHash, failureMessage }
  const result = await redeem(services, request, redemption)
  if (result.kind === 'halfway') return json({ code: '200', msg: HALFWAY })
  if (result.kind !== 'session') throw authFailure('otp_expired', { message: failureMessage })
  return json({ ...(await tokenResponse(services, result.started)), type: body.type })
}

/** Handles the link of a mail. Always ends in a redirect, unless a parameter is missing. */
export async function verifyLink(
  services: AuthServices,
  request: AuthRequest,
  query: Parsed<typeof VerifyQuery>,
): Promise<Answer> {
  const linkToken = query.token || query.token_hash || ''
  if (linkToken === '') throw invalid('Verify requires a token or a token hash', 'token')
  requireType(query.type)
  const isPkce = linkToken.startsWith(PKCE_PREFIX)
  try {
    const kinds = kindsOf(query.type)
    const token = await findByLink(services.store, linkToken, kinds)
    if (token === undefined) throw authFailure('otp_expired', { message: BAD_LINK })
    const result = await redeem(services, request, {
      token,
      endsInCode: isPkce,
      failureMessage: BAD_LINK,
    })
    if (result.kind === 'halfway') return redirectHalfway(request, isPkce)
    if (result.kind === 'authCode') {
      return redirect(withQuery(request.redirectTo, { code: result.authCode }))
    }
    const response = await tokenResponse(services, result.started)
    const fragment = { ...tokenFragment(response), type: query.type as string }
    return redirect(withFragment(request.redirectTo, fragment))
  } catch (error) {
    return redirectWithError(request.redirectTo, error, { isInQueryToo: isPkce })
  }
}

function redirectHalfway(request: AuthRequest, isPkce: boolean): Answer {
  const target = isPkce ? withQuery(request.redirectTo, { message: HALFWAY }) : request.redirectTo
  return redirect(withFragment(target, { message: HALFWAY }))
}

function requireType(type: string | undefined): asserts type is string {
  if (!type) throw invalid('Verify requires a verification type', 'type')
}

function kindsOf(type: string | undefined): (typeof KINDS_BY_TYPE)[string] {
  requireType(type)
  const kinds = Object.hasOwn(KINDS_BY_TYPE, type) ? KINDS_BY_TYPE[type] : undefined
  if (kinds === undefined) throw invalid(`Unsupported verification type "${type}"`, 'type')
  return kinds
}

type Guess =
  | { readonly kind: 'link'; readonly linkToken: string }
  | { readonly kind: 'code'; readonly code: string; readonly contact: Contact }

const CODE = /^\d{4,10}$/
// Link tokens are always longer than typed codes.
const LINK_TOKEN_CHARACTERS_MIN = 40

function parseGuess(body: Parsed<typeof VerifyBody>): Guess {
  const { token = '', token_hash: tokenHash = '' } = body
  if ((token === '') === (tokenHash === '')) {
    throw invalid('Verify requires either a token or a token hash', 'token')
  }
  const hasContact = Boolean(body.email) || Boolean(body.phone)
  if (tokenHash !== '') {
    if (hasContact) throw invalid('Only the token_hash and type should be provided', 'token_hash')
    return { kind: 'link', linkToken: tokenHash }
  }
  // A link token identifies itself, as in the older form of this endpoint.
  if (!CODE.test(token) && token.length >= LINK_TOKEN_CHARACTERS_MIN) {
    return { kind: 'link', linkToken: token }
  }
  const message = 'Only an email address or phone number should be provided on verify'
  return {
    kind: 'code',
    code: token,
    contact: parseContact(body, { both: message, none: message, malformed: malformedEmail }),
  }
}

function malformedEmail(kind: Contact['kind']): ServiceError | undefined {
  if (kind === 'phone') return undefined
  const message = 'Invalid email format'
  return authFailure('validation_failed', { message, kind: 'unprocessable', param: 'email' })
}

async function findTyped(
  services: AuthServices,
  guess: {
    readonly kinds: (typeof KINDS_BY_TYPE)[string]
    readonly type: string
    readonly contact: Contact
    readonly code: string
  },
): Promise<OneTimeTokenRow | undefined> {
  const { contact, code, kinds } = guess
  const { jwt, rateLimits } = services.config
  const candidates = await findCandidates(services, guess.type, contact)
  // The database is queried without candidates too, so that the answer takes as long.
  const userIds = candidates.length > 0 ? candidates.map((user) => user.id) : [randomUUID()]
  const isRight = gatewayCheck(services, contact, code)
  // A gateway's code identifies the number, not the user, so it cannot decide between several
  // claims.
  if (isRight !== undefined && (await countLive(services.store, { userIds, kinds })) > 1) {
    return undefined
  }
  for (const userId of userIds) {
    const found = await findByCode(services.store, {
      userId,
      kinds,
      contact: nameOf(contact),
      code,
      pepper: jwt.secret,
      attemptsMax: rateLimits.otpAttemptsMax,
      isRight,
    })
    if (found !== undefined) return found
  }
  return undefined
}

async function findCandidates(
  services: AuthServices,
  type: string,
  contact: Contact,
): Promise<UserRow[]> {
  const isChange = type === 'email_change' || type === 'phone_change'
  const changing = isChange ? await findUsersChangingTo(services.store, contact) : []
  const owner =
    type === 'phone_change' ? undefined : await findUserByContact(services.store, contact)
  return owner === undefined ? changing : [owner, ...changing]
}

// Invited users have no password yet and may set one here.
async function hashNewPassword(
  services: AuthServices,
  password: string | undefined,
): Promise<string | undefined> {
  if (!password) return undefined
  await checkPasswordRules(password, { config: services.config.password, log: services.log })
  return services.passwords.hash(password)
}
