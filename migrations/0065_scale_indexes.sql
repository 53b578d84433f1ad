-- What is looked for all the time among very many rows. Each index holds only the few rows that it is
-- asked for, so that making it takes one read of the table and keeping it next to nothing.

-- Whose wish for a new address or number a code confirms.
create index {{prefix}}users_email_change on {{prefix}}users (email_change)
  where email_change is not null;
create index {{prefix}}users_phone_change on {{prefix}}users (phone_change)
  where phone_change is not null;

-- What the clean-up takes away.
create index {{prefix}}refresh_tokens_revoked on {{prefix}}refresh_tokens (revoked_at)
  where revoked_at is not null;
create index {{prefix}}mfa_factors_unverified on {{prefix}}mfa_factors (created_at)
  where status = 'unverified';

-- Whose files are to be forgotten.
create index {{prefix}}organizations_deleted on {{prefix}}organizations (id)
  where deleted_at is not null;

-- The lines of batches that run: leases are prolonged, and ends of batches noticed, every few seconds.
create index {{prefix}}batch_lines_running on {{prefix}}batch_lines (batch_id, line)
  where state = 'running';
