import { randomUUID } from 'node:crypto'

import { TOTP } from 'otpauth'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'

import { verifyRegistration } from '#api/auth/webauthn/ceremonies.ts'
import { users } from '#launcher/commands/users.ts'

import { createAuthenticator } from './support/authenticator.ts'
import { PASSWORD, refresh } from './support/people.ts'
import { startServer, type TestServer } from './support/server.ts'

// The columns that are read, of the tables of Supabase's server 2.196.
const SCHEMA = `
create schema auth;
create table auth.users (id uuid primary key, instance_id uuid, aud text, role text, email text,
  encrypted_password text, email_confirmed_at timestamptz, invited_at timestamptz, phone text,
  phone_confirmed_at timestamptz, email_change text default '', phone_change text default '',
  last_sign_in_at timestamptz, raw_app_meta_data jsonb, raw_user_meta_data jsonb,
  banned_until timestamptz, is_sso_user boolean not null default false, deleted_at timestamptz,
  is_anonymous boolean not null default false, created_at timestamptz, updated_at timestamptz);
create table auth.identities (id uuid primary key, provider_id text not null, user_id uuid,
  identity_data jsonb, provider text, last_sign_in_at timestamptz, created_at timestamptz,
  updated_at timestamptz, email text);
create table auth.sessions (id uuid primary key, user_id uuid, created_at timestamptz,
  updated_at timestamptz, factor_id uuid, aal text, not_after timestamptz, refreshed_at timestamp,
  user_agent text, ip inet, tag text, oauth_client_id uuid, refresh_token_hmac_key text,
  refresh_token_counter bigint);
create table auth.refresh_tokens (id bigserial primary key, token text, user_id text,
  revoked boolean, parent text, session_id uuid, created_at timestamptz, updated_at timestamptz);
create table auth.mfa_amr_claims (session_id uuid, authentication_method text,
  created_at timestamptz, updated_at timestamptz);
create table auth.mfa_factors (id uuid primary key, user_id uuid, friendly_name text,
  factor_type text, status text, secret text, phone text, last_challenged_at timestamptz,
  web_authn_credential jsonb, web_authn_aaguid uuid, created_at timestamptz, updated_at timestamptz);
create table auth.webauthn_credentials (id uuid primary key, user_id uuid, credential_id bytea,
  public_key bytea, aaguid uuid, sign_count bigint, transports jsonb, backup_eligible boolean,
  backed_up boolean, friendly_name text, created_at timestamptz, updated_at timestamptz,
  last_used_at timestamptz)`

// bcrypt of the usual password, as that server writes it.
const BCRYPT = '$2a$10$vHPlhk4RayP/5uWxDqdmr.AcutMYyjYBueDamkmixsDOjVRp2u5yK'
// The token of the session below with a counter of 300: version, id, counter, HMAC and checksum,
// computed with `node:crypto` by the rule of that server's internal/crypto/refresh_tokens.go.
const SIGNED = 'ABEREREiIkMzhERVVVVVVVWsAg7ZC0vLuQzqLzMCy_Bbh8fZrB2g'
const SECRET = 'JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP'

let server: TestServer
const ada = {
  id: randomUUID(),
  session: randomUUID(),
  factor: randomUUID(),
  signed: '11111111-2222-4333-8444-555555555555',
}
const authenticator = createAuthenticator('http://localhost:3000')

beforeAll(async () => {
  server = await startServer({ env: { AUTH_PASSKEY_ENABLED: 'true' } })
  const query = (sql: string, values: unknown[] = []) => server.database.pool.query(sql, values)
  await query(SCHEMA)
  const addUser = (id: string, email: string, more: Record<string, unknown> = {}) => {
    const row = {
      id,
      email,
      aud: 'authenticated',
      role: 'authenticated',
      is_sso_user: false,
      encrypted_password: BCRYPT,
      is_anonymous: false,
      created_at: new Date(),
      email_confirmed_at: new Date(),
      raw_user_meta_data: { name: 'Ada' },
      ...more,
    }
    return query(
      'insert into auth.users select * from json_populate_record(null::auth.users, $1::json)',
      [JSON.stringify(row)],
    )
  }
  await addUser(ada.id, 'Ada@Example.com', {
    raw_app_meta_data: { plan: 'pro', console_role: 'administrator' },
    phone: '+4915100000009',
    phone_confirmed_at: new Date(),
  })
  await addUser(randomUUID(), 'banned@example.com', {
    banned_until: 'infinity',
    created_at: '-infinity',
    last_sign_in_at: 'infinity',
  })
  const planted = randomUUID()
  await addUser(planted, 'planted@example.com', { email_confirmed_at: null })
  await addUser(randomUUID(), 'saml@example.com', { is_sso_user: true })
  await query(
    `insert into auth.identities values (gen_random_uuid(), $1, $2::uuid, '{"sub":"x"}', 'email'),
     (gen_random_uuid(), $3, $4::uuid, '{"email":"planted@example.com","note":"x"}', 'email')`,
    [ada.id, ada.id, planted, planted],
  )
  await query(
    `insert into auth.sessions (id, user_id, aal, created_at, refreshed_at, ip) values
     ($1, $2, 'aal2', now(), now(), '192.0.2.1'), ($3, $2, 'aal1', now(), null, null)`,
    [ada.session, ada.id, ada.signed],
  )
  await query(
    `update auth.sessions set refresh_token_counter = 300,
     refresh_token_hmac_key = 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8' where id = $1`,
    [ada.signed],
  )
  await query(
    `insert into auth.refresh_tokens (token, revoked, session_id) values
     ('an-old-token', true, $1), ('the-valid-token', false, $1)`,
    [ada.session],
  )
  await query(`insert into auth.mfa_amr_claims values ($1, 'password', now(), now())`, [
    ada.session,
  ])
  await query(
    `insert into auth.mfa_factors (id, user_id, factor_type, status, secret) values
     ($1, $2, 'totp', 'verified', $3), (gen_random_uuid(), $2, 'totp', 'unverified', 'x')`,
    [ada.factor, ada.id, SECRET],
  )
  await addPasskey(query)
})
afterAll(() => server.close())

// A passkey that was registered here, moved to where the other server keeps them.
async function addPasskey(query: (sql: string, values?: unknown[]) => Promise<unknown>) {
  const challenge = 'AAAA'
  const user = { id: Buffer.from(ada.id).toString('base64url') }
  const response = authenticator.create({ challenge, rp: { id: 'localhost' }, user })
  const made = await verifyRegistration(server.services, {
    response: response as Parameters<typeof verifyRegistration>[1]['response'],
    challenge,
  })
  await query(
    `insert into auth.webauthn_credentials (id, user_id, credential_id, public_key, sign_count, transports)
     values (gen_random_uuid(), $1, $2, $3, $4, '["internal"]')`,
    [ada.id, made?.credentialId, made?.publicKey, made?.signCount],
  )
}

async function runImport(options: Record<string, string> = {}): Promise<string> {
  const lines: string[] = []
  const print = vi.spyOn(console, 'log').mockImplementation((line) => void lines.push(line))
  const env = {
    DATABASE_URL: server.databaseUrl,
    AUTH_SITE_URL: 'http://localhost',
    AUTH_API_EXTERNAL_URL: 'http://localhost',
    AUTH_JWT_SECRET: 'long-enough-for-the-tests',
    MILLRACE_URL_SIGNING_SECRET: 'long-enough-for-the-tests',
  }
  try {
    await users(env, { positionals: ['import'], options })
  } finally {
    print.mockRestore()
  }
  return lines.join('\n')
}

const post = (path: string, body: object, bearer?: string) =>
  server.call({ method: 'POST', path, body, ...(bearer && { bearer }) })

it('imports the users of Supabase’s server, who stay signed in', async () => {
  const report = await runImport()
  expect(report).toContain('users: 3 added')
  expect(report).toContain('refresh_tokens: 2 added')
  expect(report).toMatch(/left out: users [\w-]+: users of SAML are not supported/)
  const continued = await refresh(server, 'the-valid-token')
  expect(continued.body).toMatchObject({
    user: { id: ada.id, email: 'ada@example.com', phone: '4915100000009' },
  })
  // A console role is granted here alone.
  const { app_metadata: metadata } = continued.body.user
  expect([metadata.plan, metadata.console_role]).toEqual(['pro', undefined])
  const [, payload] = continued.body.access_token.split('.')
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString())
  expect(claims).toMatchObject({
    session_id: ada.session,
    aal: 'aal2',
    amr: [{ method: 'password' }],
  })
  expect((await refresh(server, 'an-old-token')).status).toBe(400)
  // A session whose refresh tokens are signed, not stored.
  expect((await refresh(server, SIGNED)).body).toMatchObject({ user: { id: ada.id } })
  const email = 'ada@example.com'
  const session = await post('/token?grant_type=password', { email, password: PASSWORD })
  expect(session.body.user).toMatchObject({ id: ada.id, identities: [{ provider: 'email' }] })
  const bearer = session.body.access_token
  const asked = await post(`/factors/${ada.factor}/challenge`, {}, bearer)
  const code = new TOTP({ secret: SECRET }).generate()
  const body = { challenge_id: asked.body.id, code }
  expect((await post(`/factors/${ada.factor}/verify`, body, bearer)).status).toBe(200)
  expect(await runImport()).toContain('users: 0 added')
})

it('imports passkeys', async () => {
  const begun = await post('/passkeys/authentication/options', {})
  const { challenge_id, options } = begun.body
  const credential = authenticator.get(options)
  const session = await post('/passkeys/authentication/verify', { challenge_id, credential })
  expect(session.body.user).toMatchObject({ id: ada.id })
})

it('brings nothing back that a user has removed here', async () => {
  // The session ended when a factor was verified in another one.
  await server.database.pool.query('delete from webauthn_credentials')
  const report = await runImport()
  expect(report).toContain('sessions: 0 added')
  expect(report).toContain('webauthn_credentials: 0 added')
  expect((await refresh(server, SIGNED)).status).toBe(400)
})

it('keeps neither password nor metadata of an address that was never confirmed', async () => {
  const { rows } = await server.database.pool.query(
    `select password_hash, user_metadata, i.identity_data, signed_up_at is not null as expires
     from users u join identities i on i.user_id = u.id where u.email = 'planted@example.com'`,
  )
  const identity_data = { email: 'planted@example.com' }
  expect(rows).toEqual([{ password_hash: null, user_metadata: {}, identity_data, expires: true }])
})

it('leaves out users with a second factor that cannot be read, until it can', async () => {
  const [id, factor] = [randomUUID(), randomUUID()]
  const { pool } = server.database
  await pool.query(
    `insert into auth.users (id, email, aud, encrypted_password, email_confirmed_at)
     values ($1, 'locked@example.com', 'authenticated', $2, now())`,
    [id, BCRYPT],
  )
  await pool.query(
    `insert into auth.mfa_factors (id, user_id, factor_type, status, secret)
     values ($1, $2, 'totp', 'verified', '{"key_id":"a"}')`,
    [factor, id],
  )
  expect(await runImport()).toContain(`left out: users ${id}: a second factor cannot be read`)
  const credentials = { email: 'locked@example.com', password: PASSWORD }
  const signIn = () => post('/token?grant_type=password', credentials)
  expect((await signIn()).body.error_code).toBe('invalid_credentials')
  await pool.query('update auth.mfa_factors set secret = $2 where id = $1', [factor, SECRET])
  expect(await runImport()).toContain('users: 1 added')
  expect((await signIn()).body.user.factors).toMatchObject([{ id: factor, status: 'verified' }])
})

it('names users whose address another user has taken here', async () => {
  const [id, email] = [randomUUID(), 'taken@example.com']
  await post('/signup', { email, password: PASSWORD })
  await server.database.pool.query(
    `insert into auth.users (id, email, aud, email_confirmed_at) values ($1, $2, 'x', now())`,
    [id, email],
  )
  expect(await runImport()).toContain(
    `left out: users ${id}: another user has the address or number here`,
  )
  const bearer = await server.serviceToken()
  const listed = await server.call({ path: `/admin/users?filter=${email}`, bearer })
  const path = `/admin/users/${listed.body.users[0].id}`
  await server.call({ method: 'DELETE', path, bearer })
  expect(await runImport()).toContain('users: 1 added')
})

it('refuses a schema that is not there', async () => {
  await expect(runImport({ schema: 'nowhere' })).rejects.toThrow('--schema names another one')
  await expect(runImport({ schema: 'a;b' })).rejects.toThrow('is not a schema name')
})

it('imports infinite times as finite ones, so that lists of users can be read', async () => {
  const listed = await server.call({ path: '/admin/users', bearer: await server.serviceToken() })
  expect(listed.status).toBe(200)
  const credentials = { email: 'banned@example.com', password: PASSWORD }
  const { body } = await post('/token?grant_type=password', credentials)
  expect(body.error_code).toBe('user_banned')
})
