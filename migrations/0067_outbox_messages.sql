-- Mails and text messages that wait for delivery. A row is written in the transaction that makes its
-- token and deleted when the message was delivered, expired or was given up.

create table {{prefix}}outbox_messages (
  id uuid primary key,
  -- Null for the placeholder that a request about an unknown address leaves.
  user_id uuid references {{prefix}}users (id) on delete cascade,
  -- A newer message of the same user and purpose replaces the older one: its token is void.
  purpose text not null,
  -- Recipient, variables and code, encrypted.
  content bytea not null,
  attempts integer not null default 0,
  -- Codes of the last failure; null while there was none.
  last_error text,
  next_attempt_at timestamptz not null,
  expires_at timestamptz not null,
  created_at timestamptz not null
);

create unique index {{prefix}}outbox_messages_purpose
  on {{prefix}}outbox_messages (user_id, purpose);
create index {{prefix}}outbox_messages_due on {{prefix}}outbox_messages (next_attempt_at);
