-- Bytes of the activities that clients record, by organization; each row counts 512 bytes besides its
-- content for its keys and indexes. Those of the platform are not counted. Triggers count them, so that
-- processes of the previous release and the deletion of old ones do so too.

create table {{prefix}}activity_bytes (
  organization_id text not null,
  -- One of several rows of an organization, so that concurrent transactions seldom share one.
  part smallint not null,
  bytes bigint not null,
  primary key (organization_id, part)
);

-- Organizations are counted in one order, so that concurrent statements cannot deadlock.
create function {{prefix}}count_activities() returns trigger language plpgsql as $$
begin
  insert into {{prefix}}activity_bytes as counted (organization_id, part, bytes)
  select organization_id, pg_backend_pid() % 32,
    sum(octet_length(activity::text) + 512) * tg_argv[0]::int
  from changed where activity ->> 'generator' is distinct from 'millrace'
  group by 1 order by 1
  on conflict (organization_id, part) do update set bytes = counted.bytes + excluded.bytes;
  return null;
end $$;
create trigger activity_bytes_added after insert on {{prefix}}activities
  referencing new table as changed for each statement
  execute function {{prefix}}count_activities('1');
create trigger activity_bytes_removed after delete on {{prefix}}activities
  referencing old table as changed for each statement
  execute function {{prefix}}count_activities('-1');

insert into {{prefix}}activity_bytes (organization_id, part, bytes)
select organization_id, 0, sum(octet_length(activity::text) + 512)
from {{prefix}}activities where activity ->> 'generator' is distinct from 'millrace'
group by 1;
