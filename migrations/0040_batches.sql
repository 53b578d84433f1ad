-- Batches of requests that are answered within a day, one row per request.

create table {{prefix}}batches (
  id text primary key,
  organization_id text not null references {{prefix}}organizations (id) on delete cascade,
  -- The models that the key of its maker may use; null means all.
  model_ids text[],
  endpoint text not null,
  input_file_id text not null,
  input_object_key text not null,
  completion_window text not null,
  metadata jsonb,
  status text not null default 'validating' check (
    status in ('validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired',
      'cancelling', 'cancelled')
  ),
  -- What is wrong with the input file.
  errors jsonb,
  output_file_id text,
  error_file_id text,
  total integer not null default 0,
  completed integer not null default 0,
  failed integer not null default 0,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  in_progress_at timestamptz,
  finalizing_at timestamptz,
  completed_at timestamptz,
  failed_at timestamptz,
  expired_at timestamptz,
  cancelling_at timestamptz,
  cancelled_at timestamptz,
  -- The process that validates or finalizes it, until when.
  lease_id uuid,
  lease_until timestamptz,
  -- When its lines were last handed out: batches take turns.
  served_at timestamptz
);

create index {{prefix}}batches_organization on {{prefix}}batches (organization_id, created_at desc, id desc);
create index {{prefix}}batches_open on {{prefix}}batches (status)
  where status in ('validating', 'in_progress', 'finalizing', 'cancelling');

create table {{prefix}}batch_lines (
  batch_id text not null references {{prefix}}batches (id) on delete cascade,
  line integer not null,
  custom_id text not null,
  body text not null,
  state text not null default 'waiting' check (state in ('waiting', 'running', 'done')),
  attempts integer not null default 0,
  retry_at timestamptz not null default now(),
  -- The run that may write the answer, and until when it is believed to live.
  lease_id uuid,
  lease_until timestamptz,
  request_id text,
  status_code integer,
  answer text,
  primary key (batch_id, line),
  unique (batch_id, custom_id)
);

create index {{prefix}}batch_lines_open on {{prefix}}batch_lines (batch_id, line) where state <> 'done';
