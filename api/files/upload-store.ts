import { and, count, eq, gt, type SQL, sql, sum } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import { databaseNow, increased, secondsFromNow } from '#shared/db/expressions.ts'
import type { FileRow, FileTables, UploadPartRow, UploadRow } from '#shared/db/schema/files.ts'
import { failure } from '#shared/errors.ts'

import { mayAddFile, releaseBytes, type StoredUpload } from './file-store.ts'
import { storageLimitExceeded } from './upload.ts'

/** How many uploads of an organization may be pending. */
const PENDING_MAX = 100
/** Parts of one upload. */
export const PARTS_MAX = 1000
/** Rows per statement, so that it ends long before the statement time limit. */
const DELETED_AT_ONCE = 5000

/** Twice the file, because a client sends a part again when the answer is lost. */
export const partsBytesMax = ({ bytes }: Pick<UploadRow, 'bytes'>): number => 2 * bytes

/** A file that will be sent in parts. */
interface NewUpload {
  readonly id: string
  readonly organizationId: string
  readonly filename: string
  readonly purpose: string
  readonly bytes: number
  readonly retentionSeconds: number | null
}

interface StoredPart {
  readonly id: string
  readonly bytes: number
}

/** The rows of uploads in parts, for an hour each; the bytes of parts are in object storage. */
export interface Uploads {
  /** Begins an upload and charges its bytes. Throws when a limit forbids it. */
  begin(upload: NewUpload, bytesMax: number): Promise<UploadRow>
  find(organizationId: string, id: string): Promise<UploadRow | undefined>
  parts(upload: UploadRow): Promise<UploadPartRow[]>
  /** Adds a stored part; undefined when it does not fit or the upload is no longer pending. */
  addPart(upload: UploadRow, part: StoredPart): Promise<UploadPartRow | undefined>
  /** Makes the file of a pending upload visible; undefined when it is no longer pending. */
  complete(upload: UploadRow, file: StoredUpload): Promise<FileRow | undefined>
  /** Ends a pending upload and releases its bytes; undefined when it is no longer pending. */
  cancel(upload: UploadRow): Promise<UploadRow | undefined>
  /** Deletes the rows of expired uploads and releases the bytes of pending ones. */
  deleteExpired(): Promise<void>
}

/** Opens the uploads of a database. */
export function openUploads(db: Db, tables: FileTables): Uploads {
  const { files, uploads, uploadParts } = tables
  return {
    begin: (upload, bytesMax) => begin(db, tables, upload, bytesMax),
    async find(organizationId, id) {
      const isOpen = gt(uploads.expiresAt, databaseNow)
      const isOwn = and(eq(uploads.organizationId, organizationId), eq(uploads.id, id), isOpen)
      return (await db.select().from(uploads).where(isOwn))[0]
    },
    parts: ({ id }) => db.select().from(uploadParts).where(eq(uploadParts.uploadId, id)),
    addPart: (upload, part) => addPart(db, tables, upload, part),
    complete: (upload, { retentionSeconds = null, ...file }) =>
      db.transaction(async (tx) => {
        if ((await end(tx, tables, upload, 'completed')) === undefined) return undefined
        const row = { ...file, expiresAt: secondsFromNow(retentionSeconds) }
        return (await tx.insert(files).values(row).returning())[0]
      }),
    cancel: (upload) =>
      db.transaction(async (tx) => {
        const ended = await end(tx, tables, upload, 'cancelled')
        if (ended === undefined) return undefined
        await releaseBytes(tx, tables, upload)
        return ended
      }),
    deleteExpired: () => deleteExpired(db, tables),
  }
}

function begin(
  db: Db,
  tables: FileTables,
  upload: NewUpload,
  bytesMax: number,
): Promise<UploadRow> {
  const { uploads } = tables
  const { organizationId, bytes } = upload
  return db.transaction(async (tx) => {
    // The row of the account is locked from here on, so that concurrent uploads count each other.
    const used = await charge(tx, tables, organizationId, bytes)
    if (used > bytesMax) throw storageLimitExceeded()
    const room = await tx.execute<{ fits: boolean }>(
      sql`select ${mayAddFile(tables, { organizationId, bytesMax })} as fits`,
    )
    if (room.rows[0]?.fits !== true) throw storageLimitExceeded()
    const isPending = and(eq(uploads.organizationId, organizationId), eq(uploads.status, 'pending'))
    const [pending] = await tx.select({ number: count() }).from(uploads).where(isPending)
    if ((pending?.number ?? 0) >= PENDING_MAX) throw tooManyPending()
    return (await tx.insert(uploads).values(upload).returning())[0] as UploadRow
  })
}

/** Adds to the used bytes of an organization and returns the sum. */
async function charge(
  tx: Db,
  { storage }: FileTables,
  organizationId: string,
  bytes: number,
): Promise<number> {
  const [account] = await tx
    .insert(storage)
    .values({ organizationId, usedBytes: bytes })
    .onConflictDoUpdate({
      target: storage.organizationId,
      set: { usedBytes: increased(storage.usedBytes, bytes) },
    })
    .returning()
  return account?.usedBytes ?? bytes
}

function addPart(
  db: Db,
  { uploads, uploadParts }: FileTables,
  upload: UploadRow,
  part: StoredPart,
): Promise<UploadPartRow | undefined> {
  return db.transaction(async (tx) => {
    // Locked, so that concurrent parts count each other.
    const [open] = await tx.select().from(uploads).where(isPending(uploads, upload)).for('update')
    if (open === undefined) return undefined
    const ofUpload = eq(uploadParts.uploadId, upload.id)
    const sums = { number: count(), bytes: sum(uploadParts.bytes).mapWith(Number) }
    const [stored] = await tx.select(sums).from(uploadParts).where(ofUpload)
    const { number = 0, bytes = 0 } = stored ?? {}
    if (number >= PARTS_MAX || Number(bytes) + part.bytes > partsBytesMax(upload)) return undefined
    const row = { ...part, uploadId: upload.id }
    return (await tx.insert(uploadParts).values(row).returning())[0]
  })
}

async function end(
  tx: Db,
  { uploads }: FileTables,
  upload: UploadRow,
  status: 'completed' | 'cancelled',
): Promise<UploadRow | undefined> {
  const rows = await tx
    .update(uploads)
    .set({ status })
    .where(isPending(uploads, upload))
    .returning()
  return rows[0]
}

function isPending(uploads: FileTables['uploads'], { id }: UploadRow): SQL | undefined {
  return and(eq(uploads.id, id), eq(uploads.status, 'pending'), gt(uploads.expiresAt, databaseNow))
}

async function deleteExpired(db: Db, { uploads, storage }: FileTables): Promise<void> {
  let deleted: number
  do {
    const { rows } = await db.execute<{ deleted: number }>(sql`
      with expired as (select id from ${uploads} where expires_at <= now()
          limit ${DELETED_AT_ONCE} for update),
        gone as (delete from ${uploads} where id in (select id from expired)
          returning organization_id, bytes, status),
        freed as (select organization_id, sum(bytes) as bytes from gone
          where status = 'pending' group by 1),
        given as (update ${storage} set used_bytes = used_bytes - freed.bytes
          from freed where freed.organization_id = ${storage}.organization_id)
      select count(*)::int as deleted from gone`)
    deleted = rows[0]?.deleted ?? 0
  } while (deleted === DELETED_AT_ONCE)
}

function tooManyPending(): Error {
  const message = `Your organization has ${PENDING_MAX} uploads that are neither completed nor cancelled. Complete or cancel one, or wait until they expire.`
  return failure.invalidRequest(message, { code: 'too_many_uploads' })
}
