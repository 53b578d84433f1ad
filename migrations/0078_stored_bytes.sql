-- Bytes of stored contents by organization: answers, conversations and their items, ended background
-- jobs with their results, batches and their lines; each row counts 256 bytes besides its contents.
-- Triggers count them, so that processes of the previous release and the deletion of what has expired
-- do so too.

create table {{prefix}}stored_bytes (
  organization_id text not null,
  -- One of several rows of an organization, so that concurrent transactions seldom share one.
  part smallint not null,
  bytes bigint not null,
  primary key (organization_id, part)
);

create function {{prefix}}add_stored_bytes(organization text, added bigint) returns void
language sql as $$
  insert into {{prefix}}stored_bytes as stored (organization_id, part, bytes)
  select organization, pg_backend_pid() % 8, added
  where organization is not null and added <> 0
  on conflict (organization_id, part) do update set bytes = stored.bytes + excluded.bytes
$$;

-- The bytes of a row with metadata and contents of some bytes.
create function {{prefix}}row_bytes(metadata jsonb, contents integer) returns bigint
language sql immutable as $$
  select 256 + coalesce(octet_length(metadata::text), 0) + coalesce(contents, 0)
$$;

-- Statements count organizations in one order, so that concurrent deletions cannot deadlock.

create function {{prefix}}count_answers() returns trigger language plpgsql as $$
begin
  perform {{prefix}}add_stored_bytes(c.organization_id, (c.bytes * tg_argv[0]::int)::bigint) from (
    select organization_id, sum({{prefix}}row_bytes(metadata, octet_length(content))) as bytes from changed
    group by 1 order by 1) c;
  return null;
end $$;
create trigger stored_bytes_added after insert on {{prefix}}stored_answers
  referencing new table as changed for each statement
  execute function {{prefix}}count_answers('1');
create trigger stored_bytes_removed after delete on {{prefix}}stored_answers
  referencing old table as changed for each statement
  execute function {{prefix}}count_answers('-1');

create function {{prefix}}count_answer_change() returns trigger language plpgsql as $$
begin
  perform {{prefix}}add_stored_bytes(new.organization_id,
    {{prefix}}row_bytes(new.metadata, octet_length(new.content))
    - {{prefix}}row_bytes(old.metadata, octet_length(old.content)));
  return null;
end $$;
create trigger stored_bytes_changed after update of content, metadata on {{prefix}}stored_answers
  for each row execute function {{prefix}}count_answer_change();

create function {{prefix}}count_items() returns trigger language plpgsql as $$
begin
  perform {{prefix}}add_stored_bytes(c.organization_id, (c.bytes * tg_argv[0]::int)::bigint) from (
    select o.organization_id, sum({{prefix}}row_bytes(null, octet_length(i.content))) as bytes
    from changed i join {{prefix}}conversations o on o.id = i.conversation_id
    group by 1 order by 1) c;
  return null;
end $$;
create trigger stored_bytes_added after insert on {{prefix}}conversation_items
  referencing new table as changed for each statement
  execute function {{prefix}}count_items('1');
create trigger stored_bytes_removed after delete on {{prefix}}conversation_items
  referencing old table as changed for each statement
  execute function {{prefix}}count_items('-1');

-- The items of a conversation that is deleted are counted by the conversation, which is gone when
-- the deletion reaches them.
create function {{prefix}}count_conversation() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    perform {{prefix}}add_stored_bytes(new.organization_id, {{prefix}}row_bytes(new.metadata, 0));
    return new;
  end if;
  perform {{prefix}}add_stored_bytes(old.organization_id, -{{prefix}}row_bytes(old.metadata, 0) - (
    select coalesce(sum({{prefix}}row_bytes(null, octet_length(content))), 0)::bigint
    from {{prefix}}conversation_items where conversation_id = old.id));
  return old;
end $$;
create trigger stored_bytes_added after insert on {{prefix}}conversations
  for each row execute function {{prefix}}count_conversation();
create trigger stored_bytes_removed before delete on {{prefix}}conversations
  for each row execute function {{prefix}}count_conversation();

create function {{prefix}}count_conversation_change() returns trigger language plpgsql as $$
begin
  perform {{prefix}}add_stored_bytes(new.organization_id,
    {{prefix}}row_bytes(new.metadata, 0)
    - {{prefix}}row_bytes(old.metadata, 0));
  return null;
end $$;
create trigger stored_bytes_changed after update of metadata on {{prefix}}conversations
  for each row execute function {{prefix}}count_conversation_change();

-- Unfinished jobs are bounded by their number and by the bytes of their requests.
create function {{prefix}}count_jobs() returns trigger language plpgsql as $$
begin
  perform {{prefix}}add_stored_bytes(c.organization_id, (-c.bytes)::bigint) from (
    select organization_id, sum({{prefix}}row_bytes(metadata, octet_length(result))) as bytes
    from changed where ended_at is not null
    group by 1 order by 1) c;
  return null;
end $$;
create trigger stored_bytes_removed after delete on {{prefix}}jobs
  referencing old table as changed for each statement
  execute function {{prefix}}count_jobs();

create function {{prefix}}count_ended_job() returns trigger language plpgsql as $$
begin
  perform {{prefix}}add_stored_bytes(
    new.organization_id, {{prefix}}row_bytes(new.metadata, octet_length(new.result)));
  return null;
end $$;
create trigger stored_bytes_added after update of ended_at on {{prefix}}jobs
  for each row when (old.ended_at is null and new.ended_at is not null)
  execute function {{prefix}}count_ended_job();

create function {{prefix}}count_batches() returns trigger language plpgsql as $$
begin
  perform {{prefix}}add_stored_bytes(c.organization_id, (c.bytes * tg_argv[0]::int)::bigint) from (
    select organization_id, sum({{prefix}}row_bytes(metadata, 0)) as bytes from changed
    group by 1 order by 1) c;
  return null;
end $$;
create trigger stored_bytes_added after insert on {{prefix}}batches
  referencing new table as changed for each statement
  execute function {{prefix}}count_batches('1');
create trigger stored_bytes_removed after delete on {{prefix}}batches
  referencing old table as changed for each statement
  execute function {{prefix}}count_batches('-1');

create function {{prefix}}count_lines() returns trigger language plpgsql as $$
begin
  perform {{prefix}}add_stored_bytes(c.organization_id, (c.bytes * tg_argv[0]::int)::bigint) from (
    select b.organization_id,
      sum({{prefix}}row_bytes(null, octet_length(l.body) + coalesce(octet_length(l.answer), 0))) as bytes
    from changed l join {{prefix}}batches b on b.id = l.batch_id
    group by 1 order by 1) c;
  return null;
end $$;
create trigger stored_bytes_added after insert on {{prefix}}batch_lines
  referencing new table as changed for each statement
  execute function {{prefix}}count_lines('1');
create trigger stored_bytes_removed after delete on {{prefix}}batch_lines
  referencing old table as changed for each statement
  execute function {{prefix}}count_lines('-1');

create function {{prefix}}count_line_answer() returns trigger language plpgsql as $$
begin
  perform {{prefix}}add_stored_bytes(
    (select organization_id from {{prefix}}batches where id = new.batch_id),
    coalesce(octet_length(new.answer), 0)
    - coalesce(octet_length(old.answer), 0));
  return null;
end $$;
create trigger stored_bytes_changed after update of answer on {{prefix}}batch_lines
  for each row execute function {{prefix}}count_line_answer();

insert into {{prefix}}stored_bytes (organization_id, part, bytes)
select organization_id, 0, sum(bytes) from (
  select organization_id, {{prefix}}row_bytes(metadata, octet_length(content)) as bytes
    from {{prefix}}stored_answers
  union all
  select organization_id, {{prefix}}row_bytes(metadata, 0) from {{prefix}}conversations
  union all
  select c.organization_id, {{prefix}}row_bytes(null, octet_length(i.content))
    from {{prefix}}conversation_items i join {{prefix}}conversations c on c.id = i.conversation_id
  union all
  select organization_id, {{prefix}}row_bytes(metadata, octet_length(result))
    from {{prefix}}jobs where ended_at is not null
  union all
  select organization_id, {{prefix}}row_bytes(metadata, 0) from {{prefix}}batches
  union all
  select b.organization_id,
      {{prefix}}row_bytes(null, octet_length(l.body) + coalesce(octet_length(l.answer), 0))
    from {{prefix}}batch_lines l join {{prefix}}batches b on b.id = l.batch_id
) stored group by 1;
