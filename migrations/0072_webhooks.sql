-- Webhooks of organizations: endpoints, events and their deliveries.

create table {{prefix}}webhook_endpoints (
  id text primary key,
  organization_id text not null,
  url text not null,
  description text,
  -- The types that are delivered; null means all.
  events text[],
  -- JSON of the signing secrets with their ends, encrypted.
  secrets bytea not null,
  created_at timestamptz not null default now(),
  disabled_at timestamptz,
  disabled_reason text,
  -- Since when every delivery failed.
  failing_since timestamptz
);

create index {{prefix}}webhook_endpoints_organization
  on {{prefix}}webhook_endpoints (organization_id);

create table {{prefix}}webhook_events (
  id text primary key,
  organization_id text not null,
  type text not null,
  data jsonb not null,
  created_at timestamptz not null default now()
);

create index {{prefix}}webhook_events_created_at on {{prefix}}webhook_events (created_at);

create table {{prefix}}webhook_deliveries (
  id text primary key,
  endpoint_id text not null references {{prefix}}webhook_endpoints (id) on delete cascade,
  event_id text not null references {{prefix}}webhook_events (id) on delete cascade,
  state text not null default 'pending',
  attempts integer not null default 0,
  next_attempt_at timestamptz not null default now(),
  last_status integer,
  last_error text,
  created_at timestamptz not null default now(),
  delivered_at timestamptz
);

create index {{prefix}}webhook_deliveries_due
  on {{prefix}}webhook_deliveries (endpoint_id, next_attempt_at) where state = 'pending';
create index {{prefix}}webhook_deliveries_listed
  on {{prefix}}webhook_deliveries (endpoint_id, created_at desc, id desc);
create index {{prefix}}webhook_deliveries_event on {{prefix}}webhook_deliveries (event_id);
