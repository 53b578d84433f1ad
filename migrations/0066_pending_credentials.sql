-- A one-time token names the contact that it confirms and, for a contact that is not confirmed yet,
-- carries the credentials of the request that it was made for.

alter table {{prefix}}one_time_tokens
  -- Address or number that the token was sent to.
  add column contact text not null default '',
  -- Address or number that the user changes to; null for tokens of no change.
  add column change_to text,
  add column password_hash text,
  add column user_metadata jsonb,
  -- External identity of the sign-in that asked for the confirmation.
  add column identity_id uuid;

update {{prefix}}one_time_tokens t
set contact = coalesce(case
      when t.kind in ('confirmation', 'recovery', 'email_change_current') then u.email
      when t.kind = 'email_change_new' then u.email_change
      when t.kind = 'phone_confirmation' then u.phone
      when t.kind = 'phone_change' then u.phone_change
      else coalesce(u.email, u.phone) end, ''),
    change_to = case
      when t.kind in ('email_change_new', 'email_change_current') then u.email_change
      when t.kind = 'phone_change' then u.phone_change end
from {{prefix}}users u
where u.id = t.user_id;

-- When the user signed up; null for users that administrators or identity providers made.
alter table {{prefix}}users add column signed_up_at timestamptz;

update {{prefix}}users u
set signed_up_at = u.created_at
where u.email_confirmed_at is null and u.phone_confirmed_at is null
  and u.invited_at is null and not u.is_anonymous and u.deleted_at is null
  and u.last_sign_in_at is null
  and not exists (
    select 1 from {{prefix}}audit_log_entries a
    where a.payload ->> 'action' = 'user_signedup'
      and a.payload -> 'traits' ->> 'user_id' = u.id::text
      and a.payload ->> 'actor_id' = '00000000-0000-0000-0000-000000000000');

update {{prefix}}one_time_tokens t
set password_hash = u.password_hash, user_metadata = u.user_metadata
from {{prefix}}users u
where u.id = t.user_id and u.signed_up_at is not null
  and t.kind in ('confirmation', 'phone_confirmation');

update {{prefix}}users
set password_hash = null,
    user_metadata = jsonb_strip_nulls(jsonb_build_object('sub', id, 'email', email, 'phone', phone,
      'email_verified', false, 'phone_verified', false))
where signed_up_at is not null;

update {{prefix}}identities i
set identity_data = jsonb_strip_nulls(jsonb_build_object('sub', u.id, 'email', u.email,
      'phone', u.phone, 'email_verified', false, 'phone_verified', false))
from {{prefix}}users u
where u.id = i.user_id and u.signed_up_at is not null and i.provider in ('email', 'phone');

create index {{prefix}}users_signed_up on {{prefix}}users (signed_up_at)
  where signed_up_at is not null and email_confirmed_at is null and phone_confirmed_at is null;

-- The identity that a linking flow verified, until the linking user's client exchanges the code.
alter table {{prefix}}flow_states add column linking_profile jsonb;
