import type { ExternalProfile } from '#api/auth/ports.ts'
import { isTrueAt, textAt } from '#shared/json.ts'
import { toStorable } from '#shared/storable.ts'

import type { IdTokenRule } from './row.ts'

type Email = ExternalProfile['emails'][number]

/** The profile fields of a row; empty strings are omitted from the metadata. */
export interface Person {
  readonly issuer: string
  readonly subject: string
  readonly emails: readonly Email[]
  readonly name?: string
  readonly nickname?: string
  readonly userName?: string
  readonly preferredUsername?: string
  readonly picture?: string
  readonly slug?: string
  readonly fullName?: string
  readonly custom?: Readonly<Record<string, unknown>>
}

/** Thrown when a provider's answer lacks data that every sign-in needs. */
export class ProviderReplyError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'ProviderReplyError'
  }
}

/** Makes the profile of a person, with the keys that clients know. */
export function toProfile(person: Person): ExternalProfile {
  const { subject, emails, custom = {} } = person
  const isNamed = subject !== '' && subject.length <= SUBJECT_CHARACTERS_MAX
  if (!isNamed || storable(subject) !== subject) {
    throw new ProviderReplyError('the provider names no user')
  }
  const email = emails.find((entry) => entry.isPrimary) ?? emails[0]
  const texts = {
    iss: person.issuer,
    sub: subject,
    provider_id: subject,
    name: person.name,
    full_name: person.fullName || person.name,
    nickname: person.nickname,
    user_name: person.userName,
    preferred_username: person.preferredUsername,
    picture: person.picture,
    avatar_url: person.picture,
    slug: person.slug,
    email: email?.email,
  }
  return {
    subject,
    emails,
    metadata: {
      ...Object.fromEntries(
        Object.entries(texts).flatMap(([name, text]) => (text ? [[name, storable(text)]] : [])),
      ),
      ...(Object.keys(custom).length > 0 && { custom_claims: storable(custom) }),
      email_verified: email?.isVerified ?? false,
      phone_verified: false,
    },
  }
}

const SUBJECT_CHARACTERS_MAX = 512
const EMAIL_CHARACTERS_MAX = 255
const EMAIL = /^[^\s\p{C}@<>()[\]\\,;:"]+@[^\s\p{C}@<>()[\]\\,;:"]+$/u

/** A list with the address, or an empty list when the text cannot be an address. */
export function oneEmail(email: string, isVerified: boolean): readonly Email[] {
  const isOne = email.length <= EMAIL_CHARACTERS_MAX && EMAIL.test(email)
  return isOne && !hasLookalikes(email) ? [{ email, isVerified, isPrimary: true }] : []
}

// Lower-casing turns the Kelvin sign into a plain k, which would give the owner of one address
// access to the account of another.
function hasLookalikes(email: string): boolean {
  return email.toLowerCase() !== email.replace(/[A-Z]/g, (letter) => letter.toLowerCase())
}

/** Corrects text that Postgres cannot store, such as a name cut within a surrogate pair. */
function storable<T>(value: T): T {
  if (typeof value === 'string') return toStorable(value) as T
  if (Array.isArray(value)) return value.map(storable) as T
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [storable(name), storable(inner)]),
  ) as T
}

const STANDARD_CLAIMS = new Set(
  (
    'iss sub aud exp iat nbf jti nonce at_hash c_hash azp auth_time acr amr name given_name family_name ' +
    'middle_name nickname preferred_username profile picture website email email_verified gender birthdate ' +
    'zoneinfo locale phone_number phone_number_verified updated_at ver uti rh aio xms_edov'
  ).split(' '),
)

/** The profile of standard OpenID Connect claims. */
export function profileOfClaims(
  claims: Readonly<Record<string, unknown>>,
  own: {
    readonly isVerified?: boolean
    readonly customClaims?: readonly string[]
    readonly keepsOthers?: boolean
  } = {},
): ExternalProfile {
  const text = (name: string) => textAt(claims, name)
  const others = Object.entries(claims).filter(
    ([name]) => own.customClaims?.includes(name) || (own.keepsOthers && !STANDARD_CLAIMS.has(name)),
  )
  const given = [text('given_name'), text('family_name')].filter(Boolean).join(' ')
  return toProfile({
    issuer: text('iss'),
    subject: text('sub'),
    name: text('name') || given,
    nickname: text('nickname'),
    preferredUsername: text('preferred_username'),
    picture: text('picture'),
    emails: oneEmail(text('email'), own.isVerified ?? isTrueAt(claims, 'email_verified')),
    custom: Object.fromEntries(others),
  })
}

/** The configured issuer, or the provider's own. */
export function ownIssuer(fallback: string): IdTokenRule['issuer'] {
  return ({ url }) => url.replace(/\/+$/, '') || fallback
}

/** The rule of a provider whose id tokens follow OpenID Connect. */
export function standardIdToken(issuer: string, customClaims: readonly string[] = []): IdTokenRule {
  return {
    issuer: ownIssuer(issuer),
    profile: (claims) => profileOfClaims(claims, { customClaims }),
  }
}
