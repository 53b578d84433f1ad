import type { FactorRow, IdentityRow, Metadata, UserRow } from '#shared/db/schema/auth.ts'

/** A user with identities and factors, as clients receive it. */
export interface UserWithParts {
  readonly user: UserRow
  readonly identities: readonly IdentityRow[]
  readonly factors: readonly FactorRow[]
}

/** A user as JSON: texts are never null, and times are absent until the event happens. */
export function presentUser({ user, identities, factors }: UserWithParts): Record<string, unknown> {
  return {
    id: user.id,
    aud: user.aud,
    role: user.role,
    email: user.email ?? '',
    phone: user.phone ?? '',
    ...moments({
      invited_at: user.invitedAt,
      email_confirmed_at: user.emailConfirmedAt,
      phone_confirmed_at: user.phoneConfirmedAt,
      confirmed_at: earlier(user.emailConfirmedAt, user.phoneConfirmedAt),
      confirmation_sent_at: user.confirmationSentAt,
      recovery_sent_at: user.recoverySentAt,
      reauthentication_sent_at: user.reauthenticationSentAt,
      email_change_sent_at: user.emailChangeSentAt,
      phone_change_sent_at: user.phoneChangeSentAt,
      last_sign_in_at: user.lastSignInAt,
      banned_until: user.bannedUntil,
      deleted_at: user.deletedAt,
    }),
    ...(user.emailChange !== null && user.emailChange !== '' && { new_email: user.emailChange }),
    ...(user.phoneChange !== null && user.phoneChange !== '' && { new_phone: user.phoneChange }),
    app_metadata: user.appMetadata,
    user_metadata: user.userMetadata,
    ...(factors.length > 0 && { factors: factors.map(presentFactor) }),
    identities: identities.map(presentIdentity),
    created_at: user.createdAt.toISOString(),
    updated_at: user.updatedAt.toISOString(),
    is_anonymous: user.isAnonymous,
  }
}

/** An identity as JSON. */
export function presentIdentity(identity: IdentityRow): Record<string, unknown> {
  return {
    identity_id: identity.id,
    id: identity.providerId,
    user_id: identity.userId,
    identity_data: identity.identityData,
    provider: identity.provider,
    ...moments({ last_sign_in_at: identity.lastSignInAt }),
    created_at: identity.createdAt.toISOString(),
    updated_at: identity.updatedAt.toISOString(),
    ...(identity.email !== null && { email: identity.email }),
  }
}

/** A second factor as JSON, without its secret. */
export function presentFactor(factor: FactorRow): Record<string, unknown> {
  return {
    id: factor.id,
    status: factor.status,
    ...(factor.friendlyName !== '' && { friendly_name: factor.friendlyName }),
    factor_type: factor.factorType,
    phone: factor.phone ?? '',
    last_challenged_at: factor.lastChallengedAt?.toISOString() ?? null,
    created_at: factor.createdAt.toISOString(),
    updated_at: factor.updatedAt.toISOString(),
  }
}

/** Adds `changes` to `metadata`; a null deletes its key. */
export function mergeMetadata(metadata: Metadata, changes: Metadata | undefined): Metadata {
  const merged = { ...metadata, ...changes }
  return Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== null))
}

function moments(values: Readonly<Record<string, Date | null>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) =>
      value === null ? [] : [[name, value.toISOString()]],
    ),
  )
}

function earlier(a: Date | null, b: Date | null): Date | null {
  if (a === null || b === null) return a ?? b
  return a < b ? a : b
}
