-- The creator of an organization, so that those of one user are bounded also when they were
-- deleted or given away. Of earlier ones their first owner.

alter table {{prefix}}organizations add column created_by uuid;

update {{prefix}}organizations o set created_by = (
  select m.user_id from {{prefix}}organization_members m
  where m.organization_id = o.id and m.role = 'owner' order by m.created_at limit 1)
where personal_user_id is null and deleted_at is null;

create index {{prefix}}organizations_created_by on {{prefix}}organizations (created_by)
  where created_by is not null;
