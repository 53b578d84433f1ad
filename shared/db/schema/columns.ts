import { bigint, customType, pgTableCreator, timestamp } from 'drizzle-orm/pg-core'

import { tablePrefixOf } from '#shared/db/migrate.ts'

/** Makes tables whose names begin with the configured prefix: `auth` makes `auth_users`. */
export function tableCreator(namespace: string) {
  const prefix = tablePrefixOf(namespace)
  return pgTableCreator((name) => `${prefix}${name}`)
}

/** Bytes, as a `Buffer`. */
export const bytea = customType<{ data: Buffer }>({ dataType: () => 'bytea' })

/** A time with its time zone, as a `Date`. */
export function moment(name: string) {
  return timestamp(name, { withTimezone: true, mode: 'date' })
}

/**
 * A whole number as a `number`, which is exact below 2^53. Counts and sizes are smaller; the driver
 * would read a `bigint` as a text.
 */
export function whole(name: string) {
  return bigint(name, { mode: 'number' })
}
