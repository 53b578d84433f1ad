import { and, eq, inArray, isNotNull, isNull, lt, notExists, or, type SQL } from 'drizzle-orm'
import type { PgColumn, PgTable } from 'drizzle-orm/pg-core'

import { firstOf } from '#shared/db/expressions.ts'

import type { AuthServices } from './services.ts'
import { inTransaction, type Store } from './store.ts'

const DAY_MS = 86_400_000
/**
 * Rows of visitors without a user are kept this long, so that an answer can name an expired one.
 */
const VISITORS_KEPT_MS = 600_000
// Rows per table and batch: a clean-up never holds many locks at once.
const BATCH_ROWS_MAX = 1000
// Batches of one run: on busy servers more rows expire than one batch deletes.
const BATCHES_MAX = 200

/** The number of deleted rows of each table. */
type CleanupResult = Readonly<Record<string, number>>

/** Deletes rows that expired a day ago, one batch of each table. */
export async function cleanUp(services: AuthServices): Promise<CleanupResult> {
  const { store, config } = services
  const { tables } = store
  const ago = (ms: number): Date => new Date(store.now().getTime() - ms)
  const { challenges, factors, flowStates, oneTimeTokens, refreshTokens, users } = tables
  const { webauthnChallenges } = tables
  const result: Record<string, number> = {}
  const sweep = async (name: string, table: Swept, condition: SQL | undefined): Promise<void> => {
    result[name] = await deleteBatch(store, table, condition)
  }
  // Tokens of sign-ups hold the credentials for the next mail, so they are kept as long as the
  // user.
  const endedTokens = and(
    lt(oneTimeTokens.expiresAt, ago(DAY_MS)),
    isNull(oneTimeTokens.passwordHash),
    isNull(oneTimeTokens.userMetadata),
  )
  await sweep('oneTimeTokens', oneTimeTokens, endedTokens)
  await sweep('flowStates', flowStates, endedFlows(store, ago(DAY_MS)))
  await sweep('abandonedFlows', flowStates, abandonedFlows(store, ago(VISITORS_KEPT_MS)))
  await sweep('challenges', challenges, lt(challenges.expiresAt, ago(DAY_MS)))
  // Any visitor can create these rows, so they are not kept for a day.
  await sweep(
    'webauthnChallenges',
    webauthnChallenges,
    lt(webauthnChallenges.expiresAt, ago(VISITORS_KEPT_MS)),
  )
  await sweep(
    'factors',
    factors,
    and(eq(factors.status, 'unverified'), lt(factors.createdAt, ago(DAY_MS))),
  )
  await sweep(
    'refreshTokens',
    refreshTokens,
    and(isNotNull(refreshTokens.revokedAt), lt(refreshTokens.revokedAt, ago(DAY_MS))),
  )
  const { auditRetentionDays, unconfirmedUserTtlSeconds: ttlSeconds } = config.cleanup
  if (auditRetentionDays > 0) {
    const old = lt(tables.auditLog.createdAt, ago(auditRetentionDays * DAY_MS))
    await sweep('auditLog', tables.auditLog, old)
  }
  const ended = endedSessions(services, ago)
  if (ended !== undefined) await sweep('sessions', tables.sessions, ended)
  if (config.signup.isAnonymousEnabled) {
    const old = and(eq(users.isAnonymous, true), lt(users.createdAt, ago(30 * DAY_MS)))
    result.anonymousUsers = await deleteUsers(services, old)
  }
  if (ttlSeconds > 0) {
    const expired = unconfirmedUsers(store, ago(ttlSeconds * 1000))
    result.unconfirmedUsers = await deleteUsers(services, expired)
  }
  return result
}

/** Deletes batch after batch until one is not full, or the run has taken long enough. */
export async function cleanUpAll(services: AuthServices): Promise<CleanupResult> {
  const total: Record<string, number> = {}
  for (let turn = 0; turn < BATCHES_MAX; turn += 1) {
    const deleted = Object.entries(await cleanUp(services))
    for (const [name, rows] of deleted) total[name] = (total[name] ?? 0) + rows
    if (deleted.every(([, rows]) => rows < BATCH_ROWS_MAX)) break
  }
  return total
}

/** Cleans up at an interval until the returned function is called. */
export function startCleanUp(services: AuthServices): () => void {
  const { isEnabled, intervalSeconds } = services.config.cleanup
  if (!isEnabled) return () => undefined
  let isRunning = false
  const run = async (): Promise<void> => {
    if (isRunning) return
    isRunning = true
    try {
      const deleted = await cleanUpAll(services)
      services.log.debug({ operation: 'auth.cleanup', deleted }, 'cleaned up')
    } catch (error) {
      services.log.warn({ operation: 'auth.cleanup', error }, 'clean-up failed')
    } finally {
      isRunning = false
    }
  }
  const timer = setInterval(() => void run(), Math.max(1, intervalSeconds) * 1000)
  timer.unref()
  return () => clearInterval(timer)
}

type Swept = PgTable & { readonly id: PgColumn }

function endedSessions(services: AuthServices, ago: (ms: number) => Date): SQL | undefined {
  const { sessions } = services.store.tables
  const { timeboxSeconds, inactivityTimeoutSeconds } = services.config.sessions
  const lastUse = firstOf<Date>(sessions.refreshedAt, sessions.createdAt)
  const conditions = [
    ...(timeboxSeconds > 0 ? [lt(sessions.createdAt, ago(timeboxSeconds * 1000 + DAY_MS))] : []),
    ...(inactivityTimeoutSeconds > 0
      ? [lt(lastUse, ago(inactivityTimeoutSeconds * 1000 + DAY_MS))]
      : []),
  ]
  return or(...conditions)
}

// Users who signed up but never confirmed or signed in, and were not invited.
function unconfirmedUsers({ tables }: Store, latest: Date): SQL | undefined {
  const { users } = tables
  return and(
    lt(users.signedUpAt, latest),
    isNull(users.emailConfirmedAt),
    isNull(users.phoneConfirmedAt),
    isNull(users.invitedAt),
    isNull(users.lastSignInAt),
    or(isNull(users.confirmationSentAt), lt(users.confirmationSentAt, latest)),
    eq(users.isAnonymous, false),
  )
}

// A link of a mail may be valid for longer than a day, and its code for a while after that: the
// flow of the link is kept as long.
function endedFlows({ db, tables }: Store, latest: Date): SQL | undefined {
  const { flowStates, oneTimeTokens } = tables
  const link = db
    .select({ id: oneTimeTokens.id })
    .from(oneTimeTokens)
    .where(eq(oneTimeTokens.flowStateId, flowStates.id))
  return and(
    lt(flowStates.createdAt, latest),
    or(isNull(flowStates.authCodeIssuedAt), lt(flowStates.authCodeIssuedAt, latest)),
    notExists(link),
  )
}

/** Flows to a provider that never returned; their states are valid for five minutes. */
function abandonedFlows({ tables: { flowStates } }: Store, latest: Date): SQL | undefined {
  return and(
    lt(flowStates.createdAt, latest),
    eq(flowStates.authenticationMethod, 'oauth'),
    isNotNull(flowStates.stateSha256),
  )
}

/** Deletes users together with their data on other surfaces, in one transaction. */
async function deleteUsers(services: AuthServices, condition: SQL | undefined): Promise<number> {
  const { users } = services.store.tables
  return inTransaction(services.store, async (store) => {
    const batch = await store.db
      .select({ id: users.id })
      .from(users)
      .where(condition)
      .limit(BATCH_ROWS_MAX)
      .for('update', { skipLocked: true })
    const ids = batch.map(({ id }) => id)
    if (ids.length === 0) return 0
    await services.onUsersEnded(store.db, ids)
    await store.db.delete(users).where(inArray(users.id, ids))
    return ids.length
  })
}

async function deleteBatch(
  store: Store,
  table: Swept,
  condition: SQL | undefined,
): Promise<number> {
  // The next run deletes rows that are locked now.
  const batch = store.db
    .select({ id: table.id })
    .from(table)
    .where(condition)
    .limit(BATCH_ROWS_MAX)
    .for('update', { skipLocked: true })
  const deleted = await store.db
    .delete(table)
    .where(inArray(table.id, batch))
    .returning({ id: table.id })
  return deleted.length
}
