import { invalid } from '#api/auth/errors.ts'
import type { Metadata } from '#shared/db/schema/auth.ts'

import { mergeMetadata } from './present-user.ts'

/** Bytes of one metadata object, written as JSON. */
const METADATA_BYTES_MAX = 16 * 1024

const METADATA_FIELDS = ['data', 'user_metadata', 'app_metadata'] as const

/** Throws when a metadata field of a body is larger than the limit. */
export function checkMetadataFields(body: unknown): void {
  if (typeof body !== 'object' || body === null) return
  for (const field of METADATA_FIELDS) {
    const value = (body as Readonly<Record<string, unknown>>)[field]
    if (value !== undefined && bytesOf(value) > METADATA_BYTES_MAX) throw tooLarge(field)
  }
}

/** Merges changes into metadata. Throws when the result is too large and larger than before. */
export function mergeWithinLimit(
  metadata: Metadata,
  changes: Metadata | undefined,
  field: (typeof METADATA_FIELDS)[number],
): Metadata {
  const merged = mergeMetadata(metadata, changes)
  const bytes = bytesOf(merged)
  if (bytes > METADATA_BYTES_MAX && bytes > bytesOf(metadata)) throw tooLarge(field)
  return merged
}

function bytesOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value))
}

function tooLarge(field: string): Error {
  return invalid(`${field} must be at most ${METADATA_BYTES_MAX} bytes of JSON`, field)
}
