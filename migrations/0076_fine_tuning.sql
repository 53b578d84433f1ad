-- Fine-tuning jobs, what happened to them, and the models that they made.

create table {{prefix}}fine_tuning_jobs (
  id text primary key,
  organization_id text not null,
  api_key_id text,
  user_id uuid,
  -- The models that the credential may use; null means all.
  model_ids text[],
  -- The base model.
  model text not null,
  training_file text not null,
  training_object_key text not null,
  validation_file text,
  validation_object_key text,
  suffix text not null,
  seed bigint not null,
  metadata jsonb,
  -- What the request asked for, or `auto`.
  hyperparameters jsonb not null,
  status text not null check (status in (
    'validating_files', 'queued', 'running', 'paused', 'succeeded', 'failed', 'cancelled')),
  -- The number of the background job that runs it: a resumption starts another one.
  run integer not null default 1,
  error jsonb,
  trained_tokens bigint,
  fine_tuned_model text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  estimated_finish_at timestamptz,
  finished_at timestamptz
);

create index {{prefix}}fine_tuning_jobs_listed
  on {{prefix}}fine_tuning_jobs (organization_id, created_at desc, id desc);
create index {{prefix}}fine_tuning_jobs_open on {{prefix}}fine_tuning_jobs (organization_id)
  where status in ('validating_files', 'queued', 'running', 'paused');

create table {{prefix}}fine_tuning_events (
  job_id text not null references {{prefix}}fine_tuning_jobs (id) on delete cascade,
  -- Names the event within its job: a process that replays a training writes it once.
  name text not null,
  position bigint generated always as identity,
  id text not null,
  level text not null check (level in ('info', 'warn', 'error')),
  type text not null check (type in ('message', 'metrics')),
  message text not null,
  data jsonb,
  created_at timestamptz not null default now(),
  primary key (job_id, name)
);

create index {{prefix}}fine_tuning_events_listed
  on {{prefix}}fine_tuning_events (job_id, position desc);

create table {{prefix}}fine_tuning_checkpoints (
  job_id text not null references {{prefix}}fine_tuning_jobs (id) on delete cascade,
  step integer not null,
  id text not null,
  metrics jsonb not null,
  created_at timestamptz not null default now(),
  primary key (job_id, step)
);

create table {{prefix}}tuned_models (
  -- `ft:<base>:<organization>:<suffix>:<id>`; of a checkpoint with `:ckpt-step-<step>` behind it.
  id text primary key,
  organization_id text not null,
  job_id text not null,
  -- The base model.
  model text not null,
  -- Where object storage has the adapter.
  prefix text not null,
  -- Null for the result of the job.
  step integer,
  created_at timestamptz not null default now()
);

create index {{prefix}}tuned_models_listed
  on {{prefix}}tuned_models (organization_id, created_at, id);
create index {{prefix}}tuned_models_job on {{prefix}}tuned_models (job_id);
