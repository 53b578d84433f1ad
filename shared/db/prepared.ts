import type { Db } from './client.ts'

const known = new WeakMap<Db, Map<string, unknown>>()

/**
 * A statement with placeholders that is built once per database, and that Postgres parses and plans
 * once per connection: for hot statements.
 */
export function prepared<Statement>(
  db: Db,
  name: string,
  build: (name: string) => Statement,
): Statement {
  const ofDatabase = known.get(db) ?? new Map<string, unknown>()
  known.set(db, ofDatabase)
  const statement = (ofDatabase.get(name) as Statement | undefined) ?? build(name)
  ofDatabase.set(name, statement)
  return statement
}
