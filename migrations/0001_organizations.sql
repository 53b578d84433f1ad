-- Organizations, their members and their API keys.

create table {{prefix}}organizations (
  id text primary key,
  name text not null check (length(name) between 1 and 200),
  -- The user whose own organization this is; null for shared ones.
  personal_user_id uuid unique,
  created_at timestamptz not null default now(),
  deleted_at timestamptz
);

create table {{prefix}}organization_members (
  organization_id text not null references {{prefix}}organizations (id) on delete cascade,
  user_id uuid not null,
  role text not null check (role in ('owner', 'admin', 'member')),
  created_at timestamptz not null default now(),
  primary key (organization_id, user_id)
);

create index {{prefix}}organization_members_user on {{prefix}}organization_members (user_id);

create table {{prefix}}api_keys (
  id text primary key,
  organization_id text not null references {{prefix}}organizations (id) on delete cascade,
  name text not null check (length(name) between 1 and 200),
  -- SHA-256 of the whole secret; the secret itself is never stored.
  secret_sha256 bytea not null unique check (octet_length(secret_sha256) = 32),
  -- The first characters of the secret, by which people recognize a key.
  prefix text not null,
  -- Endpoint families this key may use; null means all.
  scopes text[],
  -- Models this key may use; null means all.
  model_ids text[],
  created_by uuid,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz
);

create index {{prefix}}api_keys_organization on {{prefix}}api_keys (organization_id, created_at desc);
