import { Column, is, type Placeholder, type SQL, type SQLWrapper, sql } from 'drizzle-orm'

import type { Db } from './client.ts'

/** The time of the database at the start of the transaction. */
export const databaseNow: SQL<Date> = sql`now()`

/** A time relative to that of the database; negative seconds are in the past. */
export function secondsFromNow(seconds: number | null): SQL<Date> {
  return sql`now() + make_interval(secs => ${seconds})`
}

/** The value of a column plus a number. */
export function increased(column: Column, by: SQLWrapper | number = 1): SQL<number> {
  return sql`${column} + ${by}`
}

/** The first of two values that is not null. */
export function firstOf<T>(column: Column, otherwise: SQLWrapper): SQL<T> {
  return sql`coalesce(${column}, ${otherwise})`
}

/** A JSON column with the fields of the row that an insertion proposed. */
export function mergedWithProposed(column: Column): SQL {
  return sql`${column} || ${proposed(column)}`
}

/** The value that an insertion proposed, in its `on conflict` clause. */
export function proposed(column: Column): SQL {
  return sql`excluded.${sql.identifier(column.name)}`
}

/** Whether a JSON column has these fields with these values. */
export function hasFields(column: Column, fields: Readonly<Record<string, unknown>>): SQL {
  return sql`${column} @> ${JSON.stringify(fields)}::jsonb`
}

/** The text of a field of a JSON column. */
export function textOfField(column: Column, field: string): SQL<string | null> {
  return sql`${column} ->> ${field}`
}

/** Whether a text contains another one, ignoring case. No character is a wildcard. */
export function containsText(text: SQLWrapper, part: string): SQL {
  return sql`position(lower(${part}) in lower(${text})) > 0`
}

/**
 * Compares columns with the values of another row as one tuple. An index on the columns is then
 * read from that row on, however many rows precede it.
 */
export function isRowBeyond(
  columns: readonly (Column | SQL)[],
  direction: '<' | '>',
  values: readonly unknown[],
): SQL {
  const parameters = values.map((value, index) => {
    const column = columns[index]
    return is(column, Column) ? sql.param(value, column) : sql`${value}`
  })
  return sql`(${listOf(columns)}) ${sql.raw(direction)} (${listOf(parameters)})`
}

/** The same comparison with the row of the table that meets a condition, for pages of a list. */
export function isBeyondRowWhere(
  columns: readonly [Column, ...Column[]],
  direction: '<' | '>',
  condition: SQL | undefined,
): SQL {
  const other = sql`(select ${listOf(columns)} from ${columns[0].table} where ${condition})`
  return sql`(${listOf(columns)}) ${sql.raw(direction)} ${other}`
}

function listOf(parts: readonly SQLWrapper[]): SQL {
  return sql.join([...parts], sql`, `)
}

type ArrayType = 'bigint' | 'bytea' | 'int' | 'text' | 'timestamptz' | 'uuid'

/**
 * Rows as a table of a statement: one array parameter per column, however many rows. Postgres does
 * not look into the arrays, so that it plans a prepared statement once instead of each time.
 */
export function tableOfArrays(
  columns: readonly (readonly [type: ArrayType, values: readonly unknown[] | Placeholder])[],
): SQL {
  const arrays = columns.map(
    ([type, values]) => sql`(select ${sql.param(values)}::${sql.raw(type)}[])`,
  )
  return sql`unnest(${sql.join(arrays, sql`, `)})`
}

/** The number stored under the value of a column in an object; 0 if it has none. */
export function numberUnder(numbers: Readonly<Record<string, number>>, column: SQLWrapper): SQL {
  return sql`coalesce((${JSON.stringify(numbers)}::jsonb ->> ${column})::int, 0)`
}

/** Limits the rest of a transaction: the server cancels statements that take longer. */
export async function limitTransaction(
  tx: Db,
  limit: 'lock_timeout' | 'statement_timeout',
  milliseconds: number,
): Promise<void> {
  await tx.execute(sql.raw(`set local ${limit} = ${Math.ceil(milliseconds)}`))
}

/** Calls a function of the database with one argument. */
export async function callFunction(
  db: Db,
  path: readonly string[],
  argument: unknown,
): Promise<unknown> {
  const name = sql.join(
    path.map((part) => sql.identifier(part)),
    sql`.`,
  )
  const { rows } = await db.execute<{ answer: unknown }>(sql`select ${name}(${argument}) as answer`)
  return rows[0]?.answer
}
