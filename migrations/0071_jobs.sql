-- Requests that run without their client, and answers that are stored for later requests.

create table {{prefix}}jobs (
  id text primary key,
  organization_id text not null,
  -- The credential of the request: its use is charged to it.
  api_key_id text,
  user_id uuid,
  -- The models that the credential may use; null means all.
  model_ids text[],
  endpoint text not null,
  content_type text not null,
  -- The body of the request, encrypted.
  request bytea not null,
  model text,
  -- The stored response that the job writes.
  response_id text,
  metadata jsonb,
  priority smallint not null,
  state text not null,
  attempts integer not null default 0,
  error jsonb,
  result_status integer,
  result_headers jsonb,
  -- The body of the answer, or its events as one text, encrypted.
  result bytea,
  created_at timestamptz not null,
  not_before timestamptz not null,
  -- The deadline: a job that has not ended by then expires.
  expires_at timestamptz not null,
  started_at timestamptz,
  ended_at timestamptz,
  cancelled_at timestamptz,
  delete_at timestamptz not null,
  lease_id uuid,
  lease_until timestamptz
);

create index {{prefix}}jobs_open on {{prefix}}jobs (organization_id, priority desc, not_before, id)
  where state in ('queued', 'in_progress');
create index {{prefix}}jobs_listed on {{prefix}}jobs (organization_id, created_at desc, id desc);
create index {{prefix}}jobs_leased on {{prefix}}jobs (lease_id) where lease_id is not null;
create index {{prefix}}jobs_delete_at on {{prefix}}jobs (delete_at);

create table {{prefix}}stored_answers (
  id text primary key,
  organization_id text not null,
  user_id uuid,
  -- 'response' or 'chat.completion'.
  object text not null,
  model text not null,
  previous_id text,
  conversation_id text,
  job_id text,
  metadata jsonb,
  -- Input items and answer, encrypted.
  content bytea not null,
  created_at timestamptz not null,
  delete_at timestamptz not null
);

create index {{prefix}}stored_answers_listed
  on {{prefix}}stored_answers (organization_id, object, created_at desc, id desc);
create index {{prefix}}stored_answers_delete_at on {{prefix}}stored_answers (delete_at);

create table {{prefix}}conversations (
  id text primary key,
  organization_id text not null,
  user_id uuid,
  metadata jsonb,
  created_at timestamptz not null,
  delete_at timestamptz not null
);

create index {{prefix}}conversations_delete_at on {{prefix}}conversations (delete_at);

create table {{prefix}}conversation_items (
  id text not null,
  conversation_id text not null references {{prefix}}conversations (id) on delete cascade,
  position bigint generated always as identity,
  -- The item, encrypted.
  content bytea not null,
  created_at timestamptz not null,
  primary key (conversation_id, id)
);

create index {{prefix}}conversation_items_position
  on {{prefix}}conversation_items (conversation_id, position);

-- Days for which stored content is kept; 0 stores nothing, null follows the installation.
alter table {{prefix}}organizations add column retention_days integer
  check (retention_days between 0 and 3650);
