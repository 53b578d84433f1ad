-- Whose batch it is: the use of its lines is theirs.

alter table {{prefix}}batches add column api_key_id text;
alter table {{prefix}}batches add column user_id uuid;
