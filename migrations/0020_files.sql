-- Uploaded files and how much of its allowance each organization has used.

create table {{prefix}}files (
  id text primary key,
  organization_id text not null references {{prefix}}organizations (id) on delete cascade,
  object_key text not null unique,
  filename text not null,
  purpose text not null,
  bytes bigint not null check (bytes >= 0),
  sha256 bytea not null check (octet_length(sha256) = 32),
  created_at timestamptz not null default now()
);

create index {{prefix}}files_organization on {{prefix}}files (organization_id, created_at desc, id desc);

create table {{prefix}}organization_storage (
  organization_id text primary key references {{prefix}}organizations (id) on delete cascade,
  used_bytes bigint not null check (used_bytes >= 0)
);
