-- Limits of a key besides those of the server; null sets none.

alter table {{prefix}}api_keys
  add column requests_per_minute bigint check (requests_per_minute > 0),
  add column tokens_per_minute bigint check (tokens_per_minute > 0),
  add column concurrent_jobs bigint check (concurrent_jobs > 0);
