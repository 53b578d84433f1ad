import { sql } from 'drizzle-orm'
import { bigint, customType, integer, pgTableCreator, text, timestamp } from 'drizzle-orm/pg-core'

import { tablePrefixOf } from '../migrate.ts'
import { organizationTables } from './organizations.ts'

const bytea = customType<{ data: Buffer }>({ dataType: () => 'bytea' })

type UploadStatus = 'pending' | 'completed' | 'cancelled'

/** Uploaded files, uploads in parts and storage accounts, under the configured table prefix. */
export function fileTables(namespace: string) {
  const prefix = tablePrefixOf(namespace)
  const table = pgTableCreator((name) => `${prefix}${name}`)
  const files = table('files', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    objectKey: text('object_key').notNull().unique(),
    filename: text('filename').notNull(),
    purpose: text('purpose').notNull(),
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    sha256: bytea('sha256').notNull(),
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'date' }).notNull().defaultNow(),
    /** The time after which the file is not found; null keeps it forever. */
    expiresAt: timestamp('expires_at', { withTimezone: true, mode: 'date' }),
  })
  const storage = table('organization_storage', {
    organizationId: text('organization_id').primaryKey(),
    usedBytes: bigint('used_bytes', { mode: 'number' }).notNull(),
  })
  const uploads = table('uploads', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    filename: text('filename').notNull(),
    purpose: text('purpose').notNull(),
    /** Of the whole file, as announced; they are charged from the beginning. */
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    retentionSeconds: integer('retention_seconds'),
    status: text('status').$type<UploadStatus>().notNull().default('pending'),
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'date' }).notNull().defaultNow(),
    expiresAt: timestamp('expires_at', { withTimezone: true, mode: 'date' })
      .notNull()
      .default(sql`now() + interval '1 hour'`),
  })
  const uploadParts = table('upload_parts', {
    id: text('id').primaryKey(),
    uploadId: text('upload_id').notNull(),
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'date' }).notNull().defaultNow(),
  })
  const { organizations } = organizationTables(namespace)
  return { files, uploads, uploadParts, storage, organizations }
}

export type FileTables = ReturnType<typeof fileTables>
export type FileRow = FileTables['files']['$inferSelect']
export type UploadRow = FileTables['uploads']['$inferSelect']
export type UploadPartRow = FileTables['uploadParts']['$inferSelect']
