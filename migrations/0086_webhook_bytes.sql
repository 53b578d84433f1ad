-- Bytes of the stored events of webhooks and their deliveries, by organization. An event counts its
-- data, 512 bytes for its row and 1,024 for each delivery. Triggers count them, so that the deletion
-- of old ones does so too; a process of the previous release stores each with the default.

alter table {{prefix}}webhook_events add column bytes integer not null default 2048;

create table {{prefix}}webhook_bytes (
  organization_id text not null,
  -- One of several rows of an organization, so that concurrent transactions seldom share one.
  part smallint not null,
  bytes bigint not null,
  primary key (organization_id, part)
);

-- Organizations are counted in one order, so that concurrent statements cannot deadlock.
create function {{prefix}}count_webhook_events() returns trigger language plpgsql as $$
begin
  insert into {{prefix}}webhook_bytes as counted (organization_id, part, bytes)
  select organization_id, pg_backend_pid() % 32, sum(bytes) * tg_argv[0]::int
  from changed group by 1 order by 1
  on conflict (organization_id, part) do update set bytes = counted.bytes + excluded.bytes;
  return null;
end $$;
create trigger webhook_bytes_added after insert on {{prefix}}webhook_events
  referencing new table as changed for each statement
  execute function {{prefix}}count_webhook_events('1');
create trigger webhook_bytes_removed after delete on {{prefix}}webhook_events
  referencing old table as changed for each statement
  execute function {{prefix}}count_webhook_events('-1');

insert into {{prefix}}webhook_bytes (organization_id, part, bytes)
select organization_id, 0, sum(bytes) from {{prefix}}webhook_events group by 1;

create index {{prefix}}webhook_events_organization
  on {{prefix}}webhook_events (organization_id, created_at);
