-- The record of who did what to what, and when; append-only, one partition a month.

create table {{prefix}}activities (
  organization_id text not null,
  id text not null,
  type text not null,
  actor_id text,
  object_id text,
  published timestamptz not null,
  created_at timestamptz not null,
  -- json, not jsonb: extensions are kept as they were sent.
  activity json not null,
  primary key (organization_id, created_at, id)
) partition by range (created_at);

create index {{prefix}}activities_published on {{prefix}}activities (organization_id, published desc, id desc);
create index {{prefix}}activities_actor on {{prefix}}activities (organization_id, actor_id, published desc);
create index {{prefix}}activities_object on {{prefix}}activities (organization_id, object_id, published desc);

-- An id is unique in its organization, which no index over partitions can promise.
create table {{prefix}}activity_ids (
  organization_id text not null references {{prefix}}organizations (id) on delete cascade,
  id text not null,
  created_at timestamptz not null,
  digest bytea not null check (octet_length(digest) = 32),
  primary key (organization_id, id)
);

create index {{prefix}}activity_ids_created on {{prefix}}activity_ids (created_at);

-- Makes the partitions of this month and the next ones; running it again changes nothing.
create function {{prefix}}make_activity_partitions(months integer) returns void language plpgsql as $$
declare
  first date := date_trunc('month', now() at time zone 'utc')::date;
  from_day date;
begin
  for i in 0..months loop
    from_day := first + make_interval(months => i);
    execute format(
      'create table if not exists {{prefix}}activities_%s partition of {{prefix}}activities for values from (%L) to (%L)',
      to_char(from_day, 'YYYY_MM'),
      to_char(from_day, 'YYYY-MM-DD') || ' 00:00:00+00',
      to_char(from_day + interval '1 month', 'YYYY-MM-DD') || ' 00:00:00+00');
  end loop;
end $$;

select {{prefix}}make_activity_partitions(3);
