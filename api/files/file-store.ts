import { and, asc, desc, eq, gt, inArray, isNull, or, type SQL, sql } from 'drizzle-orm'

import type { ContentsReader } from '#api/v1/request-context.ts'
import type { Db } from '#shared/db/client.ts'
import { databaseNow, increased, isBeyondRowWhere } from '#shared/db/expressions.ts'
import { type ListDatabases, readPage } from '#shared/db/replica.ts'
import type { FileRow, FileTables } from '#shared/db/schema/files.ts'

/** The metadata of a file whose bytes are already stored. */
export interface StoredUpload {
  readonly id: string
  readonly organizationId: string
  readonly objectKey: string
  readonly filename: string
  readonly purpose: string
  readonly bytes: number
  readonly sha256: Buffer
  /** Seconds until the file expires; never when undefined. */
  readonly retentionSeconds?: number
}

export interface FilePage {
  readonly purpose?: string
  readonly limit: number
  readonly order: 'asc' | 'desc'
  /** The id of the last file of the previous page. */
  readonly after?: string
}

/** The rows of uploaded files; the bytes are in object storage. */
export interface Files {
  /** The total bytes of the organization's files. */
  usedBytes(organizationId: string): Promise<number>
  /**
   * Makes a stored upload visible and charges its bytes in one statement, so that concurrent
   * uploads never exceed `bytesMax` together. Undefined when it does not fit, or when the
   * organization has too many files.
   */
  publish(upload: StoredUpload, bytesMax: number): Promise<FileRow | undefined>
  find(organizationId: string, id: string): Promise<FileRow | undefined>
  list(reader: ContentsReader, page: FilePage): Promise<{ rows: FileRow[]; hasMore: boolean }>
  /** Deletes the row and releases its quota; returns it so that its object can be deleted. */
  remove(organizationId: string, id: string): Promise<FileRow | undefined>
  /** Deletes the rows of expired files and releases their quota. */
  deleteExpired(): Promise<void>
  /** Deletes the rows of files whose organization was deleted. */
  deleteOfDeletedOrganizations(): Promise<void>
  /** Which of these object keys belong to a file. */
  knownKeys(keys: readonly string[]): Promise<ReadonlySet<string>>
}

/** Opens the files of a database. */
export function openFiles(db: Db, tables: FileTables, lists: Db = db): Files {
  const { files, storage, organizations } = tables
  const own = (organizationId: string, id: string) =>
    and(eq(files.organizationId, organizationId), eq(files.id, id), isKept(tables))
  return {
    async usedBytes(organizationId) {
      const rows = await db
        .select({ used: storage.usedBytes })
        .from(storage)
        .where(eq(storage.organizationId, organizationId))
      return rows[0]?.used ?? 0
    },
    publish: (upload, bytesMax) => publish(db, tables, upload, bytesMax),
    async find(organizationId, id) {
      const rows = await db.select().from(files).where(own(organizationId, id))
      return rows[0]
    },
    list: ({ organizationId }, page) => list({ db, lists }, tables, organizationId, page),
    remove: (organizationId, id) => remove(db, tables, organizationId, id),
    deleteExpired: () =>
      deleteAll(db, tables, sql`select id from ${files} where expires_at <= now()`),
    async deleteOfDeletedOrganizations() {
      const deleted = sql`select id from ${organizations} where deleted_at is not null`
      const accounts = sql`${storage} where organization_id in (${deleted})`
      await deleteAll(
        db,
        tables,
        sql`select id from ${files} where organization_id in (select organization_id from ${accounts})`,
      )
      await db.execute(sql`delete from ${accounts} and used_bytes = 0
        and not exists (select 1 from ${files}
          where ${files}.organization_id = ${storage}.organization_id)`)
    },
    async knownKeys(keys) {
      if (keys.length === 0) return new Set()
      const rows = await db
        .select({ key: files.objectKey })
        .from(files)
        .where(inArray(files.objectKey, [...keys]))
      return new Set(rows.map((row) => row.key))
    },
  }
}

/** Limits the number of files as well: even an empty file adds a row and an object. */
const FILE_BYTES_MEAN = 4096
const FILES_MIN = 1000

/** The SQL condition that an organization may have one more file. */
export function mayAddFile(
  { files }: Pick<FileTables, 'files'>,
  { organizationId, bytesMax }: { readonly organizationId: string; readonly bytesMax: number },
): SQL<boolean> {
  const filesMax = Math.max(FILES_MIN, Math.floor(bytesMax / FILE_BYTES_MEAN))
  return sql<boolean>`(select count(*) from ${files} of_owner
    where of_owner.organization_id = ${organizationId}) < ${filesMax}::bigint`
}

async function publish(
  db: Db,
  { files, storage }: FileTables,
  upload: StoredUpload,
  bytesMax: number,
): Promise<FileRow | undefined> {
  if (upload.bytes > bytesMax) return undefined
  const charged = sql`
    with charged as (
      insert into ${storage} (organization_id, used_bytes)
      select ${upload.organizationId}, ${upload.bytes}::bigint
      where ${mayAddFile({ files }, { organizationId: upload.organizationId, bytesMax })}
      on conflict (organization_id) do update
        set used_bytes = ${storage.usedBytes} + excluded.used_bytes
        where ${storage.usedBytes} + excluded.used_bytes <= ${bytesMax}
      returning organization_id
    )
    insert into ${files} (id, organization_id, object_key, filename, purpose, bytes, sha256, expires_at)
    select ${upload.id}, organization_id, ${upload.objectKey}, ${upload.filename}, ${upload.purpose},
      ${upload.bytes}::bigint, ${upload.sha256}::bytea,
      now() + ${upload.retentionSeconds ?? null}::integer * interval '1 second'
    from charged
    returning id`
  const { rowCount } = await db.execute(charged)
  if (rowCount === 0) return undefined
  const rows = await db.select().from(files).where(eq(files.id, upload.id))
  return rows[0]
}

/** Rows per statement, so that it ends long before the statement time limit. */
const DELETED_AT_ONCE = 5000

/** Deletes files in batches, each together with the release of its quota. */
async function deleteAll(db: Db, { files, storage }: FileTables, which: SQL): Promise<void> {
  let deleted: number
  do {
    const { rows } = await db.execute<{ deleted: number }>(sql`
      with doomed as (${which} limit ${DELETED_AT_ONCE} for update of ${files}),
        gone as (delete from ${files} where id in (select id from doomed)
          returning organization_id, bytes),
        freed as (select organization_id, sum(bytes) as bytes from gone group by 1),
        given as (update ${storage} set used_bytes = used_bytes - freed.bytes
          from freed where freed.organization_id = ${storage}.organization_id)
      select count(*)::int as deleted from gone`)
    deleted = rows[0]?.deleted ?? 0
  } while (deleted === DELETED_AT_ONCE)
}

/** Whether a file has not expired. */
function isKept({ files }: FileTables): SQL | undefined {
  return or(isNull(files.expiresAt), gt(files.expiresAt, databaseNow))
}

async function list(
  databases: ListDatabases,
  tables: FileTables,
  organizationId: string,
  page: FilePage,
): Promise<{ rows: FileRow[]; hasMore: boolean }> {
  const { files } = tables
  const conditions: (SQL | undefined)[] = [eq(files.organizationId, organizationId), isKept(tables)]
  if (page.purpose !== undefined) conditions.push(eq(files.purpose, page.purpose))
  const isAscending = page.order === 'asc'
  if (page.after !== undefined) {
    // Compared in SQL: a JavaScript date would lose the microseconds.
    const isLast = and(eq(files.organizationId, organizationId), eq(files.id, page.after))
    const columns = [files.createdAt, files.id] as const
    conditions.push(isBeyondRowWhere(columns, isAscending ? '>' : '<', isLast))
  }
  const direction = isAscending ? asc : desc
  const rows = await readPage(databases, page.after, (db) =>
    db
      .select()
      .from(files)
      .where(and(...conditions))
      .orderBy(direction(files.createdAt), direction(files.id))
      .limit(page.limit + 1),
  )
  return { rows: rows.slice(0, page.limit), hasMore: rows.length > page.limit }
}

async function remove(
  db: Db,
  tables: FileTables,
  organizationId: string,
  id: string,
): Promise<FileRow | undefined> {
  const { files } = tables
  return db.transaction(async (tx) => {
    const rows = await tx
      .delete(files)
      .where(and(eq(files.organizationId, organizationId), eq(files.id, id), isKept(tables)))
      .returning()
    const row = rows[0]
    if (row === undefined) return undefined
    await releaseBytes(tx, tables, row)
    return row
  })
}

/** Releases bytes of a file, or of an abandoned one, from the quota of its organization. */
export async function releaseBytes(
  tx: Db,
  { storage }: FileTables,
  { organizationId, bytes }: Pick<FileRow, 'organizationId' | 'bytes'>,
): Promise<void> {
  await tx
    .update(storage)
    .set({ usedBytes: increased(storage.usedBytes, -bytes) })
    .where(eq(storage.organizationId, organizationId))
}
