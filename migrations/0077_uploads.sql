-- Files that clients send in parts; their bytes are charged to the organization when they begin.

create table {{prefix}}uploads (
  id text primary key,
  organization_id text not null references {{prefix}}organizations (id) on delete cascade,
  filename text not null,
  purpose text not null,
  bytes bigint not null check (bytes > 0),
  -- Of the file, from its completion; without end where null.
  retention_seconds integer,
  status text not null default 'pending' check (status in ('pending', 'completed', 'cancelled')),
  created_at timestamptz not null default now(),
  expires_at timestamptz not null default now() + interval '1 hour'
);

create index {{prefix}}uploads_organization on {{prefix}}uploads (organization_id) where status = 'pending';
create index {{prefix}}uploads_expires_at on {{prefix}}uploads (expires_at);

create table {{prefix}}upload_parts (
  id text primary key,
  upload_id text not null references {{prefix}}uploads (id) on delete cascade,
  bytes bigint not null check (bytes > 0),
  created_at timestamptz not null default now()
);

create index {{prefix}}upload_parts_upload on {{prefix}}upload_parts (upload_id);
