import { sql } from 'drizzle-orm'
import { integer, text } from 'drizzle-orm/pg-core'

import { bytea, moment, tableCreator, whole } from './columns.ts'
import { organizationTables } from './organizations.ts'

type UploadStatus = 'pending' | 'completed' | 'cancelled'

/** Uploaded files, uploads in parts and storage accounts, under the configured table prefix. */
export function fileTables(namespace: string) {
  const table = tableCreator(namespace)
  const files = table('files', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    objectKey: text('object_key').notNull().unique(),
    filename: text('filename').notNull(),
    purpose: text('purpose').notNull(),
    bytes: whole('bytes').notNull(),
    sha256: bytea('sha256').notNull(),
    createdAt: moment('created_at').notNull().defaultNow(),
    /** The file expires at this time; null keeps it forever. */
    expiresAt: moment('expires_at'),
  })
  const storage = table('organization_storage', {
    organizationId: text('organization_id').primaryKey(),
    usedBytes: whole('used_bytes').notNull(),
  })
  const uploads = table('uploads', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    filename: text('filename').notNull(),
    purpose: text('purpose').notNull(),
    /** The announced size of the whole file, which is charged from the beginning. */
    bytes: whole('bytes').notNull(),
    retentionSeconds: integer('retention_seconds'),
    status: text('status').$type<UploadStatus>().notNull().default('pending'),
    createdAt: moment('created_at').notNull().defaultNow(),
    expiresAt: moment('expires_at').notNull().default(sql`now() + interval '1 hour'`),
  })
  const uploadParts = table('upload_parts', {
    id: text('id').primaryKey(),
    uploadId: text('upload_id').notNull(),
    bytes: whole('bytes').notNull(),
    createdAt: moment('created_at').notNull().defaultNow(),
  })
  const { organizations } = organizationTables(namespace)
  return { files, uploads, uploadParts, storage, organizations }
}

export type FileTables = ReturnType<typeof fileTables>
export type FileRow = FileTables['files']['$inferSelect']
export type UploadRow = FileTables['uploads']['$inferSelect']
export type UploadPartRow = FileTables['uploadParts']['$inferSelect']
