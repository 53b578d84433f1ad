-- Quotas of API keys and organizations by calendar day and month (UTC); null sets none.

alter table {{prefix}}api_keys
  add column requests_per_day bigint check (requests_per_day > 0),
  add column requests_per_month bigint check (requests_per_month > 0),
  add column tokens_per_day bigint check (tokens_per_day > 0),
  add column tokens_per_month bigint check (tokens_per_month > 0),
  add column cost_per_day double precision check (cost_per_day > 0),
  add column cost_per_month double precision check (cost_per_month > 0);

alter table {{prefix}}organizations
  add column requests_per_day bigint check (requests_per_day > 0),
  add column requests_per_month bigint check (requests_per_month > 0),
  add column tokens_per_day bigint check (tokens_per_day > 0),
  add column tokens_per_month bigint check (tokens_per_month > 0),
  add column cost_per_day double precision check (cost_per_day > 0),
  add column cost_per_month double precision check (cost_per_month > 0);
