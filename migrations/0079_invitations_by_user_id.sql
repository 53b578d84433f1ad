-- Invitations of users by their id, beside those by email address.

alter table {{prefix}}organization_invitations
  alter column email drop not null,
  add column user_id uuid,
  add constraint {{prefix}}organization_invitations_invitee check (num_nonnulls(email, user_id) = 1);

-- One open invitation of a user at a time.
create unique index {{prefix}}organization_invitations_open_user
  on {{prefix}}organization_invitations (organization_id, user_id)
  where accepted_at is null and ended_at is null;
create index {{prefix}}organization_invitations_user
  on {{prefix}}organization_invitations (user_id) where accepted_at is null and ended_at is null;
