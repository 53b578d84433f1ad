-- Users, how they sign in, and what was done with their accounts.

create table {{prefix}}users (
  id uuid primary key,
  aud text not null default '',
  role text not null default '',
  -- Lower case; null for users without one.
  email text check (email = lower(email) and length(email) <= 255),
  -- Digits of the E.164 form, without the plus sign.
  phone text check (phone ~ '^[1-9][0-9]{1,14}$' or deleted_at is not null),
  -- argon2id; imported users bring bcrypt or scrypt until they sign in.
  password_hash text,
  email_confirmed_at timestamptz,
  phone_confirmed_at timestamptz,
  invited_at timestamptz,
  confirmation_sent_at timestamptz,
  recovery_sent_at timestamptz,
  reauthentication_sent_at timestamptz,
  -- The address or number that waits for confirmation.
  email_change text,
  email_change_sent_at timestamptz,
  -- 1 once one of the two sides of a change has agreed.
  email_change_agreed smallint not null default 0,
  phone_change text,
  phone_change_sent_at timestamptz,
  last_sign_in_at timestamptz,
  app_metadata jsonb not null default '{}',
  user_metadata jsonb not null default '{}',
  is_anonymous boolean not null default false,
  banned_until timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  deleted_at timestamptz
);

create unique index {{prefix}}users_email on {{prefix}}users (email);
create unique index {{prefix}}users_phone on {{prefix}}users (phone);
create index {{prefix}}users_created on {{prefix}}users (created_at desc, id);
create index {{prefix}}users_anonymous on {{prefix}}users (created_at) where is_anonymous;

create table {{prefix}}identities (
  id uuid primary key,
  user_id uuid not null references {{prefix}}users (id) on delete cascade,
  provider text not null,
  -- The provider's name of the user; for email and phone the user's own id.
  provider_id text not null,
  identity_data jsonb not null,
  email text generated always as (lower(identity_data ->> 'email')) stored,
  last_sign_in_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (provider, provider_id)
);

create index {{prefix}}identities_user on {{prefix}}identities (user_id, created_at);
create index {{prefix}}identities_email on {{prefix}}identities (email);

create table {{prefix}}sessions (
  id uuid primary key,
  user_id uuid not null references {{prefix}}users (id) on delete cascade,
  aal text not null default 'aal1' check (aal in ('aal1', 'aal2')),
  -- How the user proved who they are: [{method, timestamp, provider?}], oldest first.
  amr jsonb not null default '[]',
  factor_id uuid,
  user_agent text,
  ip text,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  refreshed_at timestamptz
);

create index {{prefix}}sessions_user on {{prefix}}sessions (user_id, created_at desc);

create table {{prefix}}refresh_tokens (
  id bigint generated always as identity primary key,
  session_id uuid not null references {{prefix}}sessions (id) on delete cascade,
  -- SHA-256; the refresh token itself is never stored.
  token_sha256 bytea not null unique check (octet_length(token_sha256) = 32),
  -- Together with the parent in clear this makes the refresh token again.
  seed bytea not null check (octet_length(seed) = 32),
  parent_id bigint,
  created_at timestamptz not null,
  revoked_at timestamptz
);

create index {{prefix}}refresh_tokens_session on {{prefix}}refresh_tokens (session_id, id desc);
-- A session has one valid refresh token at most, whatever races.
create unique index {{prefix}}refresh_tokens_valid on {{prefix}}refresh_tokens (session_id)
  where revoked_at is null;

create table {{prefix}}flow_states (
  id uuid primary key,
  user_id uuid references {{prefix}}users (id) on delete cascade,
  provider text not null,
  authentication_method text not null,
  code_challenge text,
  code_challenge_method text check (code_challenge_method in ('s256', 'plain')),
  -- SHA-256 of what the provider hands back; null for flows by mail.
  state_sha256 bytea unique,
  auth_code_sha256 bytea unique,
  auth_code_issued_at timestamptz,
  referrer text not null default '',
  provider_code_verifier text,
  linking_user_id uuid references {{prefix}}users (id) on delete cascade,
  invite_link_sha256 bytea,
  provider_access_token text,
  provider_refresh_token text,
  created_at timestamptz not null
);

create index {{prefix}}flow_states_created on {{prefix}}flow_states (created_at);

create table {{prefix}}one_time_tokens (
  id uuid primary key,
  user_id uuid not null references {{prefix}}users (id) on delete cascade,
  kind text not null check (kind in ('confirmation', 'recovery', 'email_change_new',
    'email_change_current', 'phone_confirmation', 'phone_change', 'reauthentication')),
  -- SHA-256 of the token in the link; null where there is no link.
  link_sha256 bytea unique,
  -- Keyed hash of the code: a stolen table does not tell six digits.
  code_hmac bytea not null,
  wrong_attempts integer not null default 0,
  flow_state_id uuid references {{prefix}}flow_states (id) on delete cascade,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  unique (user_id, kind)
);

create index {{prefix}}one_time_tokens_expires on {{prefix}}one_time_tokens (expires_at);

create table {{prefix}}mfa_factors (
  id uuid primary key,
  user_id uuid not null references {{prefix}}users (id) on delete cascade,
  friendly_name text not null default '',
  factor_type text not null check (factor_type in ('totp', 'phone')),
  status text not null check (status in ('unverified', 'verified')),
  secret text,
  phone text,
  -- The last time step that was accepted: a code works once.
  last_totp_step bigint,
  last_challenged_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null
);

create unique index {{prefix}}mfa_factors_name on {{prefix}}mfa_factors (user_id, friendly_name)
  where friendly_name <> '';
create index {{prefix}}mfa_factors_user on {{prefix}}mfa_factors (user_id, created_at);

create table {{prefix}}mfa_challenges (
  id uuid primary key,
  factor_id uuid not null references {{prefix}}mfa_factors (id) on delete cascade,
  code_hmac bytea,
  wrong_attempts integer not null default 0,
  ip text,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  verified_at timestamptz
);

create index {{prefix}}mfa_challenges_factor on {{prefix}}mfa_challenges (factor_id);
create index {{prefix}}mfa_challenges_expires on {{prefix}}mfa_challenges (expires_at);

create table {{prefix}}audit_log_entries (
  id uuid primary key,
  payload jsonb not null,
  ip_address text not null default '',
  created_at timestamptz not null
);

create index {{prefix}}audit_log_entries_created on {{prefix}}audit_log_entries (created_at desc, id);
