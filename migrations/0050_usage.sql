-- What the jobs of organizations took: one row per job that was answered, at least in part.

create table {{prefix}}usage (
  -- The id of the job: a job that is reported twice stands here once.
  job_id text primary key,
  organization_id text not null,
  api_key_id text,
  user_id uuid,
  request_id text,
  kind text not null,
  model_id text not null,
  outcome text not null check (outcome in ('finished', 'abandoned', 'failed')),
  prompt_tokens bigint not null check (prompt_tokens >= 0),
  completion_tokens bigint not null check (completion_tokens >= 0),
  cached_tokens bigint not null check (cached_tokens >= 0),
  created_at timestamptz not null
);

create index {{prefix}}usage_organization on {{prefix}}usage (organization_id, created_at);
