-- What is asked about open background jobs every second, without reading all of them.

create index {{prefix}}jobs_expiring on {{prefix}}jobs (expires_at)
  where state in ('queued', 'in_progress');
create index {{prefix}}jobs_cancelled on {{prefix}}jobs (cancelled_at)
  where state in ('queued', 'in_progress') and cancelled_at is not null;
create index {{prefix}}jobs_open_users on {{prefix}}jobs (user_id)
  where state in ('queued', 'in_progress') and user_id is not null;
