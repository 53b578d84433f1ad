import { and, eq, gt, isNotNull } from 'drizzle-orm'

import type { Store } from '#api/auth/store.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'

/** The invited user whose link this is, while the invitation holds. */
export async function findInvitedUser(
  store: Store,
  linkSha256: Buffer,
): Promise<UserRow | undefined> {
  const { users, oneTimeTokens } = store.tables
  const [row] = await store.db
    .select({ user: users })
    .from(oneTimeTokens)
    .innerJoin(users, eq(users.id, oneTimeTokens.userId))
    .where(
      and(
        eq(oneTimeTokens.linkSha256, linkSha256),
        gt(oneTimeTokens.expiresAt, store.now()),
        isNotNull(users.invitedAt),
      ),
    )
  return row?.user
}
