-- The model that answered the first line of a batch, and the tokens of its answered lines.

alter table {{prefix}}batches
  add column model_id text,
  add column prompt_tokens bigint not null default 0,
  add column completion_tokens bigint not null default 0,
  add column cached_tokens bigint not null default 0,
  add column reasoning_tokens bigint not null default 0;
