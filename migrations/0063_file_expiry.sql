-- Files may be given an end when they are uploaded.

alter table {{prefix}}files add column expires_at timestamptz;

create index {{prefix}}files_expires_at on {{prefix}}files (expires_at) where expires_at is not null;
