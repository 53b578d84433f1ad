-- Invitations to organizations, by e-mail address.

create table {{prefix}}organization_invitations (
  id text primary key,
  organization_id text not null references {{prefix}}organizations (id) on delete cascade,
  -- In lower case, as the user server keeps addresses.
  email text not null check (length(email) <= 255),
  role text not null check (role in ('owner', 'admin', 'member')),
  -- `user:<id>` or `key:<id>`.
  invited_by text not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  accepted_at timestamptz,
  accepted_by uuid,
  -- Taken back by the organization, or declined by the invited person.
  ended_at timestamptz,
  ended_as text check (ended_as in ('revoked', 'declined')),
  check ((ended_at is null) = (ended_as is null)),
  check (accepted_at is null or ended_at is null)
);

-- One open invitation of an address at a time.
create unique index {{prefix}}organization_invitations_open
  on {{prefix}}organization_invitations (organization_id, email)
  where accepted_at is null and ended_at is null;
create index {{prefix}}organization_invitations_email
  on {{prefix}}organization_invitations (email) where accepted_at is null and ended_at is null;
create index {{prefix}}organization_invitations_list
  on {{prefix}}organization_invitations (organization_id, created_at desc, id desc);
