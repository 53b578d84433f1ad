import type { Pool, PoolClient } from 'pg'

import { tablePrefixOf } from '#shared/db/migrate.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { sealText } from '#shared/stored-content.ts'

import { type BatchRow, type InputFault, lineContextOf } from './batch.ts'

/** The fields of a new batch. */
interface NewBatch {
  readonly id: string
  readonly organizationId: string
  readonly modelIds: readonly string[] | null
  /** The account that its lines are charged to. */
  readonly apiKeyId: string | undefined
  readonly userId: string | undefined
  readonly endpoint: string
  readonly inputFileId: string
  readonly inputObjectKey: string
  readonly completionWindow: string
  readonly windowSeconds: number
  readonly metadata: Readonly<Record<string, string>> | null
  readonly outputRetentionSeconds: number | null
}

interface BatchPage {
  readonly limit: number
  /** The id of the last batch of the page before. */
  readonly after?: string
}

/** One request of an input file. */
export interface NewLine {
  readonly line: number
  readonly customId: string
  readonly body: string
}

/** The batches of a database and their state transitions. */
export interface Batches {
  /** Undefined when the organization already has `openMax` unfinished batches. */
  create(batch: NewBatch, openMax: number): Promise<BatchRow | undefined>
  find(organizationId: string, id: string): Promise<BatchRow | undefined>
  list(organizationId: string, page: BatchPage): Promise<{ rows: BatchRow[]; hasMore: boolean }>
  /** Starts the cancellation; undefined for an unknown batch, unchanged for an ended one. */
  cancel(organizationId: string, id: string): Promise<BatchRow | undefined>
  /** Leases a batch that waits for validation or finalization, unless another process holds it. */
  lease(leaseId: string, seconds: number): Promise<BatchRow | undefined>
  renew(leaseId: string, seconds: number): Promise<void>
  /** Stores all lines in one transaction and starts the batch, unless the lease was lost. */
  begin(id: string, leaseId: string, lines: AsyncIterable<readonly NewLine[]>): Promise<void>
  /** Ends a batch whose input is faulty. */
  reject(id: string, leaseId: string, errors: readonly InputFault[]): Promise<void>
  /**
   * Advances batches whose lines are all answered, whose time is over, or whose owner was deleted
   * or banned.
   */
  settle(): Promise<void>
}

/**
 * The states of unfinished batches, as in their partial index, because finished batches are many.
 */
const OPEN = "('validating', 'in_progress', 'finalizing', 'cancelling')"

/** Opens the batches of a database. */
export function openBatches(pool: Pool, namespace: string, cipher?: ContentCipher): Batches {
  const prefix = tablePrefixOf(namespace)
  const tables = {
    batches: `${prefix}batches`,
    lines: `${prefix}batch_lines`,
    organizations: `${prefix}organizations`,
    users: `${prefix}users`,
  }
  const { batches } = tables
  const one = async (text: string, values: readonly unknown[]): Promise<BatchRow | undefined> =>
    (await pool.query<BatchRow>(text, [...values])).rows[0]
  return {
    create: (batch, openMax) => create(pool, tables, batch, openMax),
    find: (organizationId, id) =>
      one(`select * from ${batches} where organization_id = $1 and id = $2`, [organizationId, id]),
    async list(organizationId, { limit, after }) {
      const past = `(created_at, id) < (select created_at, id from ${batches}
        where organization_id = $1 and id = $3)`
      const { rows } = await pool.query<BatchRow>(
        `select * from ${batches} where organization_id = $1 and ($3::text is null or ${past})
         order by created_at desc, id desc limit $2`,
        [organizationId, limit + 1, after ?? null],
      )
      return { rows: rows.slice(0, limit), hasMore: rows.length > limit }
    },
    async cancel(organizationId, id) {
      const cancelled = await one(
        `update ${batches} set status = 'cancelling', cancelling_at = now(),
           lease_id = null, lease_until = null
         where organization_id = $1 and id = $2 and status in ('validating', 'in_progress')
         returning *`,
        [organizationId, id],
      )
      return cancelled ?? this.find(organizationId, id)
    },
    lease: (leaseId, seconds) => one(leaseQuery(tables), [leaseId, seconds]),
    async renew(leaseId, seconds) {
      await pool.query(
        `update ${batches} set lease_until = now() + make_interval(secs => $2)
         where lease_id = $1 and status in ${OPEN}`,
        [leaseId, seconds],
      )
    },
    begin: (id, leaseId, lines) => begin(pool, tables, { id, leaseId, lines, cipher }),
    async reject(id, leaseId, errors) {
      await pool.query(
        `update ${batches} set status = 'failed', failed_at = now(), errors = $3,
           lease_id = null, lease_until = null
         where id = $1 and lease_id = $2 and status = 'validating'`,
        [id, leaseId, JSON.stringify(errors)],
      )
    },
    async settle() {
      await pool.query(abandonQuery(tables))
      await pool.query(banQuery(tables), [JSON.stringify([BANNED])])
      await pool.query(settleQuery(tables))
    },
  }
}

interface Tables {
  readonly batches: string
  readonly lines: string
  readonly organizations: string
  readonly users: string
}

/** Locks the organization, so that concurrent requests count its batches one after another. */
function create(
  pool: Pool,
  { batches, organizations }: Tables,
  batch: NewBatch,
  openMax: number,
): Promise<BatchRow | undefined> {
  return inTransaction(pool, async (client) => {
    await client.query(`select id from ${organizations} where id = $1 for no key update`, [
      batch.organizationId,
    ])
    return insert(client, batches, batch, openMax)
  })
}

async function insert(
  client: PoolClient,
  batches: string,
  batch: NewBatch,
  openMax: number,
): Promise<BatchRow | undefined> {
  const { rows } = await client.query<BatchRow>(
    `insert into ${batches} (id, organization_id, model_ids, endpoint, input_file_id,
       input_object_key, completion_window, metadata, expires_at, api_key_id, user_id,
       output_retention_seconds)
     select $1, $2, $3, $4, $5, $6, $7, $8, now() + make_interval(secs => $9), $11, $12::uuid, $13
     where (select count(*) from ${batches} where organization_id = $2
       and status in ${OPEN}) < $10
     returning *`,
    [
      batch.id,
      batch.organizationId,
      batch.modelIds,
      batch.endpoint,
      batch.inputFileId,
      batch.inputObjectKey,
      batch.completionWindow,
      batch.metadata === null ? null : JSON.stringify(batch.metadata),
      batch.windowSeconds,
      openMax,
      batch.apiKeyId ?? null,
      batch.userId ?? null,
      batch.outputRetentionSeconds,
    ],
  )
  return rows[0]
}

// A deleted organization needs no results.
function abandonQuery({ batches, organizations }: Tables): string {
  return `
    update ${batches} b set status = 'cancelling', cancelling_at = now(),
      lease_id = null, lease_until = null
    from ${organizations} o
    where o.id = b.organization_id and o.deleted_at is not null
      and b.status in ('validating', 'in_progress')`
}

const BANNED: InputFault = {
  code: 'user_banned',
  message: 'The batch was cancelled because its user is banned.',
  param: null,
  line: null,
}

// A ban cancels the batches of the user's own organization, and those that the user created with an
// access token elsewhere.
function banQuery({ batches, organizations, users }: Tables): string {
  return `
    update ${batches} b set status = 'cancelling', cancelling_at = now(), errors = $1,
      lease_id = null, lease_until = null
    from ${organizations} o
    where o.id = b.organization_id and b.status in ('validating', 'in_progress')
      and exists (select 1 from ${users} u
        where u.id in (o.personal_user_id, b.user_id) and u.banned_until > now())`
}

// A cancelled batch is finalized once none of its lines runs any more.
function leaseQuery({ batches, lines }: Tables): string {
  return `
    update ${batches} set lease_id = $1, lease_until = now() + make_interval(secs => $2)
    where id = (
      select id from ${batches} b
      where (lease_until is null or lease_until < now())
        and (status in ('validating', 'finalizing') or (status = 'cancelling' and not exists (
          select 1 from ${lines} l
          where l.batch_id = b.id and l.state = 'running' and l.lease_until > now())))
      order by created_at limit 1 for update skip locked
    )
    returning *`
}

function settleQuery({ batches, lines }: Tables): string {
  return `
    update ${batches} b set status = 'finalizing', finalizing_at = now()
    where (status = 'validating' and expires_at <= now())
      or (status = 'in_progress'
        and not exists (select 1 from ${lines} l
          where l.batch_id = b.id and l.state = 'running' and l.lease_until > now())
        and (expires_at <= now() or not exists (
          select 1 from ${lines} l where l.batch_id = b.id and l.state <> 'done')))`
}

async function begin(
  pool: Pool,
  { batches, lines }: Tables,
  batch: {
    readonly id: string
    readonly leaseId: string
    readonly lines: AsyncIterable<readonly NewLine[]>
    readonly cipher: ContentCipher | undefined
  },
): Promise<void> {
  await inTransaction(pool, async (client) => {
    let total = 0
    for await (const page of batch.lines) {
      await client.query(
        `insert into ${lines} (batch_id, line, custom_id, body)
         select $1, * from unnest($2::int[], $3::text[], $4::text[])`,
        [
          batch.id,
          page.map(({ line }) => line),
          page.map(({ customId }) => customId),
          page.map(({ line, body }) => sealText(body, batch.cipher, lineContextOf(batch.id, line))),
        ],
      )
      total += page.length
    }
    const { rowCount } = await client.query(
      `update ${batches} set status = 'in_progress', in_progress_at = now(), total = $3,
         lease_id = null, lease_until = null
       where id = $1 and lease_id = $2 and status = 'validating'`,
      [batch.id, batch.leaseId, total],
    )
    // Without the lease, the lines belong to another process.
    return rowCount === 1 ? total : undefined
  })
}

/** Commits when `work` returns a value and rolls back when it returns undefined. */
async function inTransaction<T>(
  pool: Pool,
  work: (client: PoolClient) => Promise<T | undefined>,
): Promise<T | undefined> {
  const client = await pool.connect()
  try {
    await client.query('begin')
    const result = await work(client)
    await client.query(result === undefined ? 'rollback' : 'commit')
    return result
  } catch (error) {
    await client.query('rollback')
    throw error
  } finally {
    client.release()
  }
}
