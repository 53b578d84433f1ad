-- Names of actors and objects may be longer than an index entry: they are found by how they begin.

drop index {{prefix}}activities_actor;
drop index {{prefix}}activities_object;

create index {{prefix}}activities_actor
  on {{prefix}}activities (organization_id, left(actor_id, 200), published desc, id desc);
create index {{prefix}}activities_object
  on {{prefix}}activities (organization_id, left(object_id, 200), published desc, id desc);

-- Ids come in the order of time, so that a summary of each range of blocks finds the old ones.
drop index {{prefix}}activity_ids_created;
create index {{prefix}}activity_ids_created on {{prefix}}activity_ids using brin (created_at);

-- Organizations are never removed from their table, only marked: the check costs more than it holds.
alter table {{prefix}}activity_ids drop constraint {{prefix}}activity_ids_organization_id_fkey;
