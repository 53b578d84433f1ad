import { and, eq, getTableColumns, isNull, sql } from 'drizzle-orm'

import type { Store } from '#api/auth/store.ts'
import {
  type JsonRow,
  type Parts,
  readJsonRow,
  readParts,
  selectParts,
} from '#api/auth/users/user-parts-store.ts'
import { prepared } from '#shared/db/client.ts'
import type { SessionRow, UserRow } from '#shared/db/schema/auth.ts'

/** The user of an access token, as the database knows them. */
interface AuthenticatedUser {
  readonly user: UserRow
  readonly parts: Parts
  /** Undefined without a session id, and when the user has no such session. */
  readonly session: SessionRow | undefined
}

/**
 * Reads all data that a request of a signed-in user needs in one statement, because every such
 * request begins with it. Undefined when the user does not exist or was deleted.
 */
export async function findAuthenticatedUser(
  store: Store,
  ids: { readonly userId: string; readonly sessionId: string | undefined },
): Promise<AuthenticatedUser | undefined> {
  const { db, tables } = store
  const statement = prepared(db, 'find_authenticated_user', (name) => prepareSelect(store, name))
  const [row] = await statement.execute({ userId: ids.userId, sessionId: ids.sessionId ?? null })
  if (row === undefined) return undefined
  const { identities, factors, session, ...user } = row
  return {
    user,
    parts: readParts(tables, { identities, factors }),
    session: session === null ? undefined : readJsonRow(tables.sessions, session),
  }
}

function prepareSelect({ db, tables }: Store, name: string) {
  const { users, sessions } = tables
  const sessionId = sql`${sql.placeholder('sessionId')}::uuid`
  return db
    .select({
      ...getTableColumns(users),
      ...selectParts(tables),
      session: sql<JsonRow | null>`(
        select row_to_json(s) from ${sessions} s
        where s.id = ${sessionId} and s.user_id = ${sql.placeholder('userId')}::uuid)`,
    })
    .from(users)
    .where(and(eq(users.id, sql.placeholder('userId')), isNull(users.deletedAt)))
    .prepare(name)
}
