import { type SQL, type SQLWrapper, sql } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import type { OrganizationTables } from '#shared/db/schema/organizations.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

/** The bytes that a row counts besides its contents and metadata, as in the migration. */
export const ROW_BYTES = 256

type Tables = Pick<OrganizationTables, 'storedBytes'>

/** Contents that an organization is about to store. */
interface Addition {
  readonly organizationId: string | SQLWrapper
  /** The size as stored: compressed and encrypted. */
  readonly bytes: number
  /** The limit of all contents of the organization. */
  readonly bytesMax: number | SQLWrapper
}

/** Whether the contents of an organization fit, as a condition of a statement. */
export function fitsStorage({ storedBytes }: Tables, addition: Addition): SQL<boolean> {
  const { organizationId, bytes, bytesMax } = addition
  return sql<boolean>`(select coalesce(sum(${storedBytes.bytes}), 0) + ${bytes}::bigint
    <= ${bytesMax}::bigint from ${storedBytes}
    where ${storedBytes.organizationId} = ${organizationId})`
}

/**
 * Whether contents fit. Transactions in flight are not counted, so the limit may be exceeded by as
 * many contents as there are database connections.
 */
export async function hasStorageFor(db: Db, tables: Tables, addition: Addition): Promise<boolean> {
  const fits = fitsStorage(tables, addition)
  const { rows } = await db.execute<{ fits: boolean }>(sql`select ${fits} as fits`)
  return rows[0]?.fits === true
}

/** The refusal of contents that do not fit. */
export function storageLimitExceeded(): ServiceError {
  const { message, code } = STORAGE_LIMIT_EXCEEDED
  return failure.invalidRequest(message, { code, shouldRetry: false })
}

/** The error of a job or a batch line whose answer does not fit. */
export const STORAGE_LIMIT_EXCEEDED = {
  code: 'storage_limit_exceeded',
  message:
    "Your organization's stored responses, conversations, results of background jobs and unfinished batches have the bytes that they may have together: delete some, or wait until they expire.",
}
