import { getTableColumns, getTableName, type SQL, sql } from 'drizzle-orm'
import type { PgTable } from 'drizzle-orm/pg-core'

import type { AuthTables, FactorRow, IdentityRow } from '#shared/db/schema/auth.ts'

/** Identities and factors of a user, oldest first. */
export interface Parts {
  readonly identities: readonly IdentityRow[]
  readonly factors: readonly FactorRow[]
}

/** A row as Postgres writes it in JSON. */
export type JsonRow = Readonly<Record<string, unknown>>

/**
 * Selects identities and factors of the `users` row of the statement, so that they need no query of
 * their own.
 */
export function selectParts({ users, identities, factors }: AuthTables) {
  return { identities: listOf(users, identities), factors: listOf(users, factors) }
}

/** The result row of `selectParts`. */
export function readParts(
  tables: AuthTables,
  selected: { readonly identities: readonly JsonRow[]; readonly factors: readonly JsonRow[] },
): Parts {
  const { identities, factors } = selected
  return {
    identities: identities.map((row) => readJsonRow(tables.identities, row)),
    factors: factors.map((row) => readJsonRow(tables.factors, row)),
  }
}

function listOf(users: PgTable, table: PgTable): SQL<readonly JsonRow[]> {
  // Written out, because in a statement of one table the query builder omits table names.
  const userId = sql`${sql.identifier(getTableName(users))}.id`
  return sql`coalesce((select json_agg(p order by p.created_at, p.id) from ${table} p where p.user_id = ${userId}), '[]'::json)`
}

/** The row of a table that was returned as JSON. */
export function readJsonRow<Table extends PgTable>(
  table: Table,
  row: JsonRow,
): Table['$inferSelect'] {
  const entries = Object.entries(getTableColumns(table)).map(([name, column]) => {
    const value = row[column.name] ?? null
    return [name, column.dataType === 'date' && value !== null ? new Date(String(value)) : value]
  })
  // Its columns are those of the table, read above.
  return Object.fromEntries(entries) as Table['$inferSelect']
}
