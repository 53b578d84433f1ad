import type { Client, PoolClient } from 'pg'

import { UsageError } from '#launcher/command-line.ts'
import { tablePrefixOf } from '#shared/db/migrate.ts'

import {
  boundTimes,
  type ImportedRow,
  readFactor,
  readFactorCredential,
  readIdentity,
  readPasskey,
  readRefreshToken,
  readSession,
  readUser,
  type SourceRow,
} from './users-import-rows.ts'

/** How many rows of each table were added, and why others were not. */
interface ImportReport {
  readonly added: Readonly<Record<string, number>>
  /** One line for each skipped row, for the first hundred of them. */
  readonly skipped: readonly string[]
  readonly skippedCount: number
}

/** One table of the source, its target table, and the reader of its rows. */
interface Step {
  readonly from: string
  /** Joins the rows of other tables into the source's row. */
  readonly select: (schema: string) => string
  readonly into: string
  read(row: SourceRow, now: Date): ImportedRow | string | undefined
}

const PAGE_ROWS = 500
const SKIPPED_LINES_MAX = 100
const NIL_UUID = '00000000-0000-0000-0000-000000000000'

const rows = (table: string, more = '') => ({
  from: table,
  select: (schema: string) => `to_jsonb(t)${more.replaceAll('{{schema}}', schema)}`,
})

// The second factors that the password alone must not replace.
const USER_PARTS = ` || jsonb_build_object('factors', (select jsonb_agg(to_jsonb(f))
    from {{schema}}.mfa_factors f where f.user_id = t.id and f.status = 'verified'))`

// Whether the claims may come from anyone, because the user signed up but confirmed nothing.
const IDENTITY_PARTS = ` || jsonb_build_object('is_signup', (
    select u.email_confirmed_at is null and u.phone_confirmed_at is null and u.invited_at is null
    from {{schema}}.users u where u.id = t.user_id) and t.provider in ('email', 'phone'))`

// The proofs of a session, and the refresh token that is valid.
const SESSION_PARTS = ` || jsonb_build_object(
  'amr', (select jsonb_agg(jsonb_build_object('method', c.authentication_method,
      'timestamp', floor(extract(epoch from c.updated_at))::bigint) order by c.updated_at)
    from {{schema}}.mfa_amr_claims c where c.session_id = t.id),
  'token', (select r.token from {{schema}}.refresh_tokens r
    where r.session_id = t.id and not r.revoked order by r.id desc limit 1))`

const STEPS: readonly Step[] = [
  { ...rows('users', USER_PARTS), into: 'users', read: readUser },
  { ...rows('identities', IDENTITY_PARTS), into: 'identities', read: readIdentity },
  { ...rows('mfa_factors'), into: 'mfa_factors', read: readFactor },
  { ...rows('mfa_factors'), into: 'webauthn_credentials', read: readFactorCredential },
  { ...rows('webauthn_credentials'), into: 'webauthn_credentials', read: readPasskey },
  { ...rows('sessions', SESSION_PARTS), into: 'sessions', read: readSession },
  { ...rows('sessions', SESSION_PARTS), into: 'refresh_tokens', read: readRefreshToken },
]

/**
 * Copies users, identities, second factors, passkeys, sessions and refresh tokens from a schema of
 * Supabase's server in one transaction. A later run adds users that are new in the source. Existing
 * users are unchanged: what they have removed here, such as a session, must not be restored.
 */
export async function importUsers(options: {
  readonly source: Client
  readonly schema: string
  readonly target: PoolClient
  readonly tablePrefix: string
  readonly now: Date
}): Promise<ImportReport> {
  const { source, schema, target, now } = options
  if (!/^[a-z_][a-z0-9_]*$/.test(schema)) throw new UsageError(`"${schema}" is not a schema name`)
  const prefix = tablePrefixOf(options.tablePrefix)
  const added: Record<string, number> = {}
  const skipped: Skipped = { count: 0, lines: [] }
  await source.query('begin transaction isolation level repeatable read read only')
  await target.query('begin')
  try {
    await target.query(`create temporary table ${ADDED} (id uuid primary key) on commit drop`)
    await requireSource(source, schema)
    for (const step of STEPS) {
      if (!(await hasTable(source, schema, step.from))) continue
      for await (const page of pagesOf(source, schema, step)) {
        const read = page.map((row) => readRow(step, boundTimes(row), { now, skipped }))
        const kept = read.filter((row) => row !== undefined)
        const count = await insert(target, { prefix, table: step.into, kept })
        added[step.into] = (added[step.into] ?? 0) + count
        if (step.into !== 'users') continue
        for (const id of await findDisplaced(target, prefix, kept)) {
          skip(skipped, `users ${id}: another user has the address or number here`)
        }
      }
    }
    await target.query('commit')
  } catch (error) {
    await target.query('rollback')
    throw error
  } finally {
    await source.query('rollback')
  }
  return { added, skipped: skipped.lines, skippedCount: skipped.count }
}

async function requireSource(source: Client, schema: string): Promise<void> {
  const { rows: found } = await source.query(
    `select 1 from information_schema.columns
     where table_schema = $1 and table_name = 'identities' and column_name = 'provider_id'`,
    [schema],
  )
  if (found.length > 0) return
  throw new UsageError(
    `the schema "${schema}" has no tables of Supabase's server 2.133 or newer; --schema names another one`,
  )
}

async function hasTable(source: Client, schema: string, table: string): Promise<boolean> {
  const { rows: found } = await source.query('select to_regclass($1) as id', [`${schema}.${table}`])
  return found[0]?.id !== null
}

async function* pagesOf(
  source: Client,
  schema: string,
  step: Step,
): AsyncGenerator<readonly SourceRow[]> {
  let after = NIL_UUID
  for (;;) {
    const { rows: page } = await source.query<{ id: string; row: SourceRow }>(
      `select t.id, ${step.select(schema)} as row from ${schema}.${step.from} t
       where t.id > $1 order by t.id limit ${PAGE_ROWS}`,
      [after],
    )
    const last = page.at(-1)
    if (last === undefined) return
    after = last.id
    yield page.map(({ row }) => row)
  }
}

function readRow(
  step: Step,
  row: SourceRow,
  { now, skipped }: { readonly now: Date; readonly skipped: Skipped },
): ImportedRow | undefined {
  const read = step.read(row, now)
  if (typeof read !== 'string') return read
  skip(skipped, `${step.from} ${row.id}: ${read}`)
  return undefined
}

interface Skipped {
  count: number
  readonly lines: string[]
}

function skip(skipped: Skipped, line: string): void {
  skipped.count += 1
  if (skipped.lines.length < SKIPPED_LINES_MAX) skipped.lines.push(line)
}

/** The users that are absent after their page was added. */
async function findDisplaced(
  target: PoolClient,
  prefix: string,
  kept: readonly ImportedRow[],
): Promise<readonly string[]> {
  const { rows: found } = await target.query<{ id: string }>(
    `select id from unnest($1::uuid[]) id
     where not exists (select 1 from ${prefix}users u where u.id = id.id)`,
    [kept.map(({ id }) => id)],
  )
  return found.map(({ id }) => id)
}

/** The ids of the users and sessions of this run. */
const ADDED = 'millrace_added'

/** Adds rows whose owners this run has added; returns their number. */
async function insert(
  target: PoolClient,
  page: {
    readonly prefix: string
    readonly table: string
    readonly kept: readonly ImportedRow[]
  },
): Promise<number> {
  const { prefix, table, kept } = page
  const [first] = kept
  if (first === undefined) return 0
  const names = Object.keys(first).join(', ')
  const owner = OWNERS[table]
  const insertion = `insert into ${prefix}${table} (${names})
     select ${names} from json_populate_recordset(null::${prefix}${table}, $1::json) r
     ${owner === undefined ? '' : `where r.${owner} in (select id from ${ADDED})`}
     on conflict do nothing`
  const isOwner = table === 'users' || table === 'sessions'
  const text = isOwner
    ? `with added as (${insertion} returning id) insert into ${ADDED} select id from added`
    : insertion
  const result = await target.query(text, [JSON.stringify(kept)])
  return result.rowCount ?? 0
}

/** The columns that name the owner of a row. */
const OWNERS: Readonly<Record<string, string>> = {
  identities: 'user_id',
  mfa_factors: 'user_id',
  webauthn_credentials: 'user_id',
  sessions: 'user_id',
  refresh_tokens: 'session_id',
}
