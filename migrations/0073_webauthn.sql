-- Credentials of authenticators: of second factors, and passkeys, which belong to no factor.

alter table {{prefix}}mfa_factors drop constraint {{prefix}}mfa_factors_factor_type_check;
alter table {{prefix}}mfa_factors add constraint {{prefix}}mfa_factors_factor_type_check
  check (factor_type in ('totp', 'phone', 'webauthn'));

-- What an authenticator has to sign; null for challenges of codes.
alter table {{prefix}}mfa_challenges add column webauthn_challenge text;

create table {{prefix}}webauthn_credentials (
  id uuid primary key,
  user_id uuid not null references {{prefix}}users (id) on delete cascade,
  -- Null for passkeys.
  factor_id uuid unique references {{prefix}}mfa_factors (id) on delete cascade,
  credential_id bytea not null unique,
  -- COSE.
  public_key bytea not null,
  sign_count bigint not null default 0,
  transports text[] not null default '{}',
  aaguid uuid,
  is_backup_eligible boolean not null default false,
  is_backed_up boolean not null default false,
  friendly_name text not null default '',
  created_at timestamptz not null,
  updated_at timestamptz not null,
  last_used_at timestamptz
);

create index {{prefix}}webauthn_credentials_user on {{prefix}}webauthn_credentials (user_id, created_at);

-- Challenges of passkeys. A row is deleted by the request that presents it.
create table {{prefix}}webauthn_challenges (
  id uuid primary key,
  -- Null for sign-ins, whose user only the authenticator knows.
  user_id uuid references {{prefix}}users (id) on delete cascade,
  challenge text not null,
  created_at timestamptz not null,
  expires_at timestamptz not null
);

create index {{prefix}}webauthn_challenges_user on {{prefix}}webauthn_challenges (user_id)
  where user_id is not null;
create index {{prefix}}webauthn_challenges_expires on {{prefix}}webauthn_challenges (expires_at);
