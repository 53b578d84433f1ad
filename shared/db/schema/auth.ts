import { sql } from 'drizzle-orm'
import {
  boolean,
  integer,
  jsonb,
  type pgTableCreator,
  smallint,
  text,
  uuid,
} from 'drizzle-orm/pg-core'

import { bytea, moment, tableCreator, whole } from './columns.ts'

/** Free-form values that users and administrators keep with an account. */
export type Metadata = Readonly<Record<string, unknown>>

/** One proof of identity of a session. */
export interface AmrEntry {
  readonly method: string
  /** Unix seconds. */
  readonly timestamp: number
  readonly provider?: string
}

/** The tables of the user server, under the configured table prefix. */
export function authTables(namespace: string) {
  const table = tableCreator(namespace)
  return {
    ...userTables(table),
    ...sessionTables(table),
    ...factorTables(table),
    ...webauthnTables(table),
    ...outboxTables(table),
  }
}

export type AuthTables = ReturnType<typeof authTables>
export type UserRow = AuthTables['users']['$inferSelect']
export type IdentityRow = AuthTables['identities']['$inferSelect']
export type SessionRow = AuthTables['sessions']['$inferSelect']
export type RefreshTokenRow = AuthTables['refreshTokens']['$inferSelect']
export type FlowStateRow = AuthTables['flowStates']['$inferSelect']
export type OneTimeTokenRow = AuthTables['oneTimeTokens']['$inferSelect']
export type FactorRow = AuthTables['factors']['$inferSelect']
export type ChallengeRow = AuthTables['challenges']['$inferSelect']
export type WebAuthnCredentialRow = AuthTables['webauthnCredentials']['$inferSelect']
export type WebAuthnChallengeRow = AuthTables['webauthnChallenges']['$inferSelect']
export type OutboxMessageRow = AuthTables['outboxMessages']['$inferSelect']
export type AuditLogRow = AuthTables['auditLog']['$inferSelect']

type TableCreator = ReturnType<typeof pgTableCreator>

function userTables(table: TableCreator) {
  const users = table('users', {
    id: uuid('id').primaryKey(),
    aud: text('aud').notNull().default(''),
    role: text('role').notNull().default(''),
    email: text('email'),
    phone: text('phone'),
    passwordHash: text('password_hash'),
    emailConfirmedAt: moment('email_confirmed_at'),
    phoneConfirmedAt: moment('phone_confirmed_at'),
    invitedAt: moment('invited_at'),
    confirmationSentAt: moment('confirmation_sent_at'),
    recoverySentAt: moment('recovery_sent_at'),
    reauthenticationSentAt: moment('reauthentication_sent_at'),
    emailChange: text('email_change'),
    emailChangeSentAt: moment('email_change_sent_at'),
    emailChangeAgreed: smallint('email_change_agreed').notNull().default(0),
    phoneChange: text('phone_change'),
    phoneChangeSentAt: moment('phone_change_sent_at'),
    lastSignInAt: moment('last_sign_in_at'),
    appMetadata: jsonb('app_metadata').$type<Metadata>().notNull().default({}),
    userMetadata: jsonb('user_metadata').$type<Metadata>().notNull().default({}),
    isAnonymous: boolean('is_anonymous').notNull().default(false),
    bannedUntil: moment('banned_until'),
    signedUpAt: moment('signed_up_at'),
    createdAt: moment('created_at').notNull(),
    updatedAt: moment('updated_at').notNull(),
    deletedAt: moment('deleted_at'),
  })
  const identities = table('identities', {
    id: uuid('id').primaryKey(),
    userId: uuid('user_id').notNull(),
    provider: text('provider').notNull(),
    providerId: text('provider_id').notNull(),
    identityData: jsonb('identity_data').$type<Metadata>().notNull(),
    email: text('email').generatedAlwaysAs(sql`lower(identity_data ->> 'email')`),
    lastSignInAt: moment('last_sign_in_at'),
    createdAt: moment('created_at').notNull(),
    updatedAt: moment('updated_at').notNull(),
  })
  const auditLog = table('audit_log_entries', {
    id: uuid('id').primaryKey(),
    payload: jsonb('payload').$type<Metadata>().notNull(),
    ipAddress: text('ip_address').notNull().default(''),
    createdAt: moment('created_at').notNull(),
  })
  return { users, identities, auditLog }
}

function sessionTables(table: TableCreator) {
  const sessions = table('sessions', {
    id: uuid('id').primaryKey(),
    userId: uuid('user_id').notNull(),
    aal: text('aal', { enum: ['aal1', 'aal2'] })
      .notNull()
      .default('aal1'),
    amr: jsonb('amr').$type<readonly AmrEntry[]>().notNull().default([]),
    factorId: uuid('factor_id'),
    userAgent: text('user_agent'),
    ip: text('ip'),
    createdAt: moment('created_at').notNull(),
    updatedAt: moment('updated_at').notNull(),
    refreshedAt: moment('refreshed_at'),
    tag: text('tag'),
  })
  const refreshTokens = table('refresh_tokens', {
    id: whole('id').primaryKey().generatedAlwaysAsIdentity(),
    sessionId: uuid('session_id').notNull(),
    tokenSha256: bytea('token_sha256').notNull(),
    seed: bytea('seed').notNull(),
    parentId: whole('parent_id'),
    createdAt: moment('created_at').notNull(),
    revokedAt: moment('revoked_at'),
  })
  const flowStates = table('flow_states', {
    id: uuid('id').primaryKey(),
    userId: uuid('user_id'),
    provider: text('provider').notNull(),
    authenticationMethod: text('authentication_method').notNull(),
    codeChallenge: text('code_challenge'),
    codeChallengeMethod: text('code_challenge_method', { enum: ['s256', 'plain'] }),
    stateSha256: bytea('state_sha256'),
    authCodeSha256: bytea('auth_code_sha256'),
    authCodeIssuedAt: moment('auth_code_issued_at'),
    referrer: text('referrer').notNull().default(''),
    providerCodeVerifier: text('provider_code_verifier'),
    linkingUserId: uuid('linking_user_id'),
    inviteLinkSha256: bytea('invite_link_sha256'),
    linkingProfile: jsonb('linking_profile').$type<unknown>(),
    providerAccessToken: text('provider_access_token'),
    providerRefreshToken: text('provider_refresh_token'),
    createdAt: moment('created_at').notNull(),
  })
  return { sessions, refreshTokens, flowStates }
}

function factorTables(table: TableCreator) {
  const oneTimeTokens = table('one_time_tokens', {
    id: uuid('id').primaryKey(),
    userId: uuid('user_id').notNull(),
    kind: text('kind', { enum: ONE_TIME_TOKEN_KINDS }).notNull(),
    linkSha256: bytea('link_sha256'),
    codeHmac: bytea('code_hmac').notNull(),
    wrongAttempts: integer('wrong_attempts').notNull().default(0),
    flowStateId: uuid('flow_state_id'),
    contact: text('contact').notNull().default(''),
    changeTo: text('change_to'),
    passwordHash: text('password_hash'),
    userMetadata: jsonb('user_metadata').$type<Metadata>(),
    identityId: uuid('identity_id'),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
  })
  const factors = table('mfa_factors', {
    id: uuid('id').primaryKey(),
    userId: uuid('user_id').notNull(),
    friendlyName: text('friendly_name').notNull().default(''),
    factorType: text('factor_type', { enum: ['totp', 'phone', 'webauthn'] }).notNull(),
    status: text('status', { enum: ['unverified', 'verified'] }).notNull(),
    secret: text('secret'),
    phone: text('phone'),
    lastTotpStep: whole('last_totp_step'),
    lastChallengedAt: moment('last_challenged_at'),
    createdAt: moment('created_at').notNull(),
    updatedAt: moment('updated_at').notNull(),
  })
  const challenges = table('mfa_challenges', {
    id: uuid('id').primaryKey(),
    factorId: uuid('factor_id').notNull(),
    codeHmac: bytea('code_hmac'),
    webauthnChallenge: text('webauthn_challenge'),
    wrongAttempts: integer('wrong_attempts').notNull().default(0),
    ip: text('ip'),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
    verifiedAt: moment('verified_at'),
  })
  return { oneTimeTokens, factors, challenges }
}

function webauthnTables(table: TableCreator) {
  const webauthnCredentials = table('webauthn_credentials', {
    id: uuid('id').primaryKey(),
    userId: uuid('user_id').notNull(),
    factorId: uuid('factor_id'),
    credentialId: bytea('credential_id').notNull(),
    publicKey: bytea('public_key').notNull(),
    signCount: whole('sign_count').notNull().default(0),
    transports: text('transports').array().notNull().default([]),
    aaguid: uuid('aaguid'),
    isBackupEligible: boolean('is_backup_eligible').notNull().default(false),
    isBackedUp: boolean('is_backed_up').notNull().default(false),
    friendlyName: text('friendly_name').notNull().default(''),
    createdAt: moment('created_at').notNull(),
    updatedAt: moment('updated_at').notNull(),
    lastUsedAt: moment('last_used_at'),
  })
  const webauthnChallenges = table('webauthn_challenges', {
    id: uuid('id').primaryKey(),
    userId: uuid('user_id'),
    challenge: text('challenge').notNull(),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
  })
  return { webauthnCredentials, webauthnChallenges }
}

function outboxTables(table: TableCreator) {
  const outboxMessages = table('outbox_messages', {
    id: uuid('id').primaryKey(),
    userId: uuid('user_id'),
    purpose: text('purpose').notNull(),
    content: bytea('content').notNull(),
    attempts: integer('attempts').notNull().default(0),
    lastError: text('last_error'),
    nextAttemptAt: moment('next_attempt_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
    createdAt: moment('created_at').notNull(),
  })
  return { outboxMessages }
}

/** The kinds of one-time tokens; a user has at most one of each. */
const ONE_TIME_TOKEN_KINDS = [
  'confirmation',
  'recovery',
  'email_change_new',
  'email_change_current',
  'phone_confirmation',
  'phone_change',
  'reauthentication',
] as const

export type OneTimeTokenKind = (typeof ONE_TIME_TOKEN_KINDS)[number]
