-- Lists over all organizations, newest first, as the console shows them.

create index {{prefix}}jobs_created on {{prefix}}jobs (created_at desc, id);
create index {{prefix}}batches_created on {{prefix}}batches (created_at desc, id);
create index {{prefix}}files_created on {{prefix}}files (created_at desc, id);

-- Sums over the last days, of all organizations: rows arrive in the order of time.
create index {{prefix}}usage_created on {{prefix}}usage using brin (created_at);
