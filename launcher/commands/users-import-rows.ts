import { createHash, createHmac, randomBytes, randomUUID } from 'node:crypto'

import { SEED_BYTES } from '#api/auth/sessions/rotation-store.ts'

/** A row of the source in Postgres's JSON format. */
export type SourceRow = Readonly<Record<string, unknown>>
/** A row to add, by the columns of the target table. */
export type ImportedRow = Readonly<Record<string, unknown>>

const text = (value: unknown): string => (typeof value === 'string' ? value : '')
const orNull = (value: unknown): string | null => text(value) || null
const objectOf = (value: unknown): object =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {}
const hex = (bytes: Buffer): string => `\\x${bytes.toString('hex')}`
const times = (row: SourceRow, now: Date) => ({
  created_at: row.created_at ?? now.toISOString(),
  updated_at: row.updated_at ?? now.toISOString(),
})

const BOUNDS: Readonly<Record<string, string>> = {
  infinity: '9999-12-31T23:59:59',
  '-infinity': '1970-01-01T00:00:00',
}

/** A row with finite times: the server cannot read others, such as a ban until `infinity`. */
export function boundTimes(row: SourceRow): SourceRow {
  const entries = Object.entries(row).map(([name, value]) => {
    const isTime = /_(at|until|after)$/.test(name)
    return [name, (isTime && BOUNDS[text(value)]) || value]
  })
  return Object.fromEntries(entries)
}

const EMAIL_CHARACTERS_MAX = 255
const PHONE = /^[1-9][0-9]{1,14}$/

/** A user, or the reason why the row is skipped. */
export function readUser(row: SourceRow, now: Date): ImportedRow | string {
  if (row.is_sso_user === true) return 'users of SAML are not supported'
  const email = text(row.email).toLowerCase()
  const phone = text(row.phone).replace(/^\+/, '')
  const refusal = findUnreadableFactor(row, now)
  if (refusal !== undefined) return `a second factor cannot be read: ${refusal}`
  if (email.length > EMAIL_CHARACTERS_MAX) return 'the email address is too long'
  if (phone !== '' && !PHONE.test(phone) && !row.deleted_at) return 'the phone number is malformed'
  const isConfirmed = Boolean(row.email_confirmed_at || row.phone_confirmed_at)
  const isSignup = !isConfirmed && row.is_anonymous !== true && !row.invited_at && !row.deleted_at
  return {
    id: row.id,
    aud: text(row.aud),
    role: text(row.role),
    email: email || null,
    phone: phone || null,
    // Until an address is confirmed, anyone may have chosen the password.
    password_hash: isConfirmed ? orNull(row.encrypted_password) : null,
    email_confirmed_at: row.email_confirmed_at ?? null,
    phone_confirmed_at: row.phone_confirmed_at ?? null,
    invited_at: row.invited_at ?? null,
    last_sign_in_at: row.last_sign_in_at ?? null,
    app_metadata: appMetadataOf(row),
    // The same applies to the metadata.
    user_metadata: isSignup ? {} : objectOf(row.raw_user_meta_data),
    is_anonymous: row.is_anonymous === true,
    banned_until: row.banned_until ?? null,
    signed_up_at: isSignup ? (row.created_at ?? now.toISOString()) : null,
    deleted_at: row.deleted_at ?? null,
    ...times(row, now),
  }
}

// Without that factor, the password alone would sign the user in. A later run adds the user.
function findUnreadableFactor({ factors }: SourceRow, now: Date): string | undefined {
  const all = Array.isArray(factors) ? (factors as readonly SourceRow[]) : []
  return all.map((factor) => readFactor(factor, now)).find((read) => typeof read === 'string')
}

/** An identity, or the reason why the row is skipped. */
export function readIdentity(row: SourceRow, now: Date): ImportedRow | string {
  const provider = text(row.provider)
  if (provider.startsWith('sso:')) return 'identities of SAML are not supported'
  return {
    id: row.id,
    user_id: row.user_id,
    provider,
    provider_id: text(row.provider_id),
    identity_data: row.is_signup === true ? claimsOf(row) : objectOf(row.identity_data),
    last_sign_in_at: row.last_sign_in_at ?? null,
    ...times(row, now),
  }
}

// Console roles are granted only here; the name may have another meaning in the source.
function appMetadataOf(row: SourceRow): object {
  const { console_role: _role, ...metadata } = objectOf(row.raw_app_meta_data) as SourceRow
  return metadata
}

// The identity also contains the data of a sign-up.
function claimsOf({ identity_data: data }: SourceRow): object {
  const { sub, email, phone } = objectOf(data) as SourceRow
  return { sub, email, phone }
}

const BASE32 = /^[A-Z2-7]+=*$/i

/**
 * A verified second factor, or the reason why the row is skipped; undefined for an unverified
 * factor.
 */
export function readFactor(row: SourceRow, now: Date): ImportedRow | string | undefined {
  if (row.status !== 'verified') return undefined
  const type = text(row.factor_type)
  if (!['totp', 'phone', 'webauthn'].includes(type)) return `factors of type ${type} are unknown`
  if (type === 'totp' && !BASE32.test(text(row.secret))) {
    return 'the secret is encrypted: switch SECURITY_DB_ENCRYPTION off and let its user sign in there'
  }
  if (type === 'webauthn' && findCredential(row) === undefined) return 'it has no credential'
  return {
    id: row.id,
    user_id: row.user_id,
    friendly_name: text(row.friendly_name),
    factor_type: type,
    status: 'verified',
    secret: type === 'totp' ? row.secret : null,
    phone: type === 'phone' ? text(row.phone).replace(/^\+/, '') : null,
    last_challenged_at: row.last_challenged_at ?? null,
    ...times(row, now),
  }
}

/** The credential of a WebAuthn factor; undefined for other factors. */
export function readFactorCredential(row: SourceRow, now: Date): ImportedRow | undefined {
  const credential = findCredential(row)
  if (row.status !== 'verified' || credential === undefined) return undefined
  return {
    id: randomUUID(),
    user_id: row.user_id,
    factor_id: row.id,
    ...credential,
    friendly_name: text(row.friendly_name),
    ...times(row, now),
    last_used_at: null,
  }
}

// The library of the source writes credentials as JSON with bytes in base64.
function findCredential(row: SourceRow): ImportedRow | undefined {
  if (row.factor_type !== 'webauthn') return undefined
  const credential = objectOf(row.web_authn_credential) as SourceRow
  const flags = objectOf(credential.flags) as SourceRow
  const authenticator = objectOf(credential.authenticator) as SourceRow
  const [id, key] = [text(credential.id), text(credential.publicKey)]
  if (id === '' || key === '') return undefined
  return {
    credential_id: hex(Buffer.from(id, 'base64')),
    public_key: hex(Buffer.from(key, 'base64')),
    sign_count: Number(authenticator.signCount) || 0,
    transports: Array.isArray(credential.transport) ? credential.transport : [],
    aaguid: row.web_authn_aaguid ?? null,
    is_backup_eligible: flags.backupEligible === true,
    is_backed_up: flags.backupState === true,
  }
}

/** A passkey. */
export function readPasskey(row: SourceRow, now: Date): ImportedRow {
  return {
    id: row.id,
    user_id: row.user_id,
    factor_id: null,
    credential_id: row.credential_id,
    public_key: row.public_key,
    sign_count: row.sign_count,
    transports: Array.isArray(row.transports) ? row.transports : [],
    aaguid: row.aaguid ?? null,
    is_backup_eligible: row.backup_eligible === true,
    is_backed_up: row.backed_up === true,
    friendly_name: text(row.friendly_name),
    ...times(row, now),
    last_used_at: row.last_used_at ?? null,
  }
}

/** A session that has not ended, or the reason why the row is skipped. */
export function readSession(row: SourceRow, now: Date): ImportedRow | string | undefined {
  if (hasEnded(row, now)) return undefined
  if (row.oauth_client_id) return 'sessions of the OAuth authorization server are not supported'
  return {
    id: row.id,
    user_id: row.user_id,
    aal: row.aal === 'aal2' || row.aal === 'aal3' ? 'aal2' : 'aal1',
    amr: Array.isArray(row.amr) ? row.amr : [],
    factor_id: row.factor_id ?? null,
    user_agent: orNull(row.user_agent),
    ip: orNull(row.ip),
    ...times(row, now),
    // The column has no time zone: it is UTC.
    refreshed_at: row.refreshed_at ? `${text(row.refreshed_at)}Z` : null,
    tag: orNull(row.tag),
  }
}

/** The refresh token that continues a session; undefined if there is none. */
export function readRefreshToken(row: SourceRow, now: Date): ImportedRow | string | undefined {
  if (hasEnded(row, now) || row.oauth_client_id) return undefined
  const token = text(row.refresh_token_hmac_key) === '' ? text(row.token) : signedToken(row)
  if (token === undefined)
    return 'the key of its refresh tokens is encrypted: its user must sign in again'
  if (token === '') return undefined
  return {
    session_id: row.id,
    token_sha256: hex(createHash('sha256').update(token).digest()),
    seed: hex(randomBytes(SEED_BYTES)),
    created_at: row.updated_at ?? now.toISOString(),
  }
}

function hasEnded(row: SourceRow, now: Date): boolean {
  return Boolean(row.not_after) && Date.parse(text(row.not_after)) <= now.getTime()
}

const KEY = /^[A-Za-z0-9_-]{43}$/
const SIGNATURE_BYTES = 16
const CHECKSUM_BYTES = 4

/**
 * Newer sessions store no refresh token. It consists of version 0, the session's id and a counter,
 * followed by a shortened HMAC-SHA-256 and a checksum. Undefined when the key is encrypted.
 */
function signedToken(row: SourceRow): string | undefined {
  const key = text(row.refresh_token_hmac_key)
  if (!KEY.test(key)) return undefined
  const id = Buffer.from(text(row.id).replaceAll('-', ''), 'hex')
  const message = Buffer.concat([
    Buffer.from([0]),
    id,
    varint(Number(row.refresh_token_counter) || 0),
  ])
  const hmac = createHmac('sha256', Buffer.from(key, 'base64url')).update(message).digest()
  const signed = Buffer.concat([message, hmac.subarray(0, SIGNATURE_BYTES)])
  const checksum = createHash('sha256').update(signed).digest().subarray(0, CHECKSUM_BYTES)
  return Buffer.concat([signed, checksum]).toString('base64url')
}

// Seven bits per byte, the lowest first.
function varint(value: number): Buffer {
  const bytes: number[] = []
  let rest = value
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80)
  return Buffer.from([...bytes, rest])
}
