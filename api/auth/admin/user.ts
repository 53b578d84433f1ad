import { authFailure, invalid } from '#api/auth/errors.ts'
import { parseUuid } from '#api/auth/factors/own-factor.ts'
import { isKnownPasswordHash } from '#api/auth/passwords/password-hashes.ts'
import { checkPasswordRules } from '#api/auth/passwords/password-rules.ts'
import type { AdminUserBody, Parsed } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { parseEmail, parsePhone } from '#api/auth/users/contact.ts'
import { findAnyUserById } from '#api/auth/users/user-store.ts'
import { parseDurationMs } from '#shared/clock.ts'
import type { Metadata, UserRow } from '#shared/db/schema/auth.ts'

type Body = Parsed<typeof AdminUserBody>

/** The user in the path, including soft-deleted ones. Throws 404 `user_not_found`. */
export async function getUser(services: AuthServices, userId: string): Promise<UserRow> {
  const user = await findAnyUserById(services.store, parseUuid(userId, 'user_id'))
  if (user === undefined) {
    throw authFailure('user_not_found', { message: 'User not found', kind: 'notFound' })
  }
  return user
}

/** The email address and phone number of a body, in canonical form. */
export function parseContacts(body: Body): { email?: string; phone?: string } {
  return {
    ...(body.email && { email: parseEmail(body.email) }),
    ...(body.phone && { phone: parsePhone(body.phone) }),
  }
}

/** The metadata about the contacts that an administrator confirms. */
export function verifiedClaims(contacts: Contacts, body: Body): Metadata {
  return {
    ...(contacts.email && body.email_confirm && { email_verified: true }),
    ...(contacts.phone && body.phone_confirm && { phone_verified: true }),
  }
}

interface Contacts {
  readonly email?: string | null
  readonly phone?: string | null
}

/** The hash to store: that of a password, or the given hash of an imported user. */
export async function parsePassword(
  services: AuthServices,
  body: Body,
  rules: { readonly areChecked: boolean },
): Promise<string | undefined> {
  if (body.password && body.password_hash) {
    throw invalid('Only a password or a password hash should be provided', 'password_hash')
  }
  if (body.password_hash) {
    if (isKnownPasswordHash(body.password_hash)) return body.password_hash
    throw invalid(
      'password_hash has an unknown format or unsupported costs: argon2, bcrypt and scrypt are supported',
      'password_hash',
    )
  }
  // An empty password is too weak for an existing user. A new user may be without a password.
  if (body.password === undefined || (body.password === '' && !rules.areChecked)) return undefined
  if (rules.areChecked) {
    await checkPasswordRules(body.password, { config: services.config.password, log: services.log })
  } else if (Buffer.byteLength(body.password) > PASSWORD_BYTES_MAX) {
    throw invalid(`Password cannot be longer than ${PASSWORD_BYTES_MAX} characters`, 'password')
  }
  return services.passwords.hash(body.password)
}

const PASSWORD_BYTES_MAX = 72
const BAN_MS_MAX = 1000 * 365 * 86_400_000
const GO_DURATION = /^0$|^(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)/

/** The end of a ban by its `ban_duration`: undefined when none was sent, null for `none`. */
export function parseBan(text: string | undefined, now: Date): Date | null | undefined {
  if (text === undefined || text === '') return undefined
  if (text === 'none') return null
  const ms = GO_DURATION.test(text) && !text.includes('d') ? parseDurationMs(text) : undefined
  if (ms === undefined) {
    throw invalid(`invalid format for ban duration: "${text.slice(0, 64)}"`, 'ban_duration')
  }
  return new Date(now.getTime() + Math.min(ms, BAN_MS_MAX))
}
