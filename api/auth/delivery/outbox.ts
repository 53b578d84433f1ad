import { randomUUID } from 'node:crypto'

import { asc, count, desc, eq, inArray, isNotNull, lte, min, type SQL } from 'drizzle-orm'

import type { Mail, Sms } from '#api/auth/ports.ts'
import type { Store } from '#api/auth/store.ts'
import { increased } from '#shared/db/expressions.ts'
import type { OutboxMessageRow } from '#shared/db/schema/auth.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'

/** A message that waits for delivery. `none` has no recipient and is deleted unsent. */
export type OutboxMessage =
  | { readonly channel: 'email'; readonly mail: Mail }
  | { readonly channel: 'sms'; readonly sms: Sms }
  /** A new user, announced to a hook. */
  | { readonly channel: 'newUser'; readonly ip: string }
  | { readonly channel: 'none' }

/** How many messages wait, and how many of them have failed at least once. */
export interface OutboxState {
  readonly waiting: number
  readonly failing: number
  /** When the oldest waiting message was written. */
  readonly oldestAt: Date | undefined
  /** When the oldest message that has failed was written. */
  readonly failingSince: Date | undefined
  /** Codes of the last failure of the newest message that has failed. */
  readonly lastError: string | undefined
}

/** Writes a message; the row that the sender reads is committed with the caller's transaction. */
export async function writeMessage(
  { db, tables, now }: Store,
  cipher: ContentCipher,
  entry: {
    readonly userId: string | null
    /** A newer message of the same user and purpose replaces the older one. */
    readonly purpose: string
    readonly message: OutboxMessage
    readonly expiresAt: Date
  },
): Promise<string> {
  const { outboxMessages } = tables
  const { userId, purpose, message, expiresAt } = entry
  const id = randomUUID()
  const row = {
    id,
    content: cipher.encrypt(JSON.stringify(message), contextOf(id)),
    attempts: 0,
    lastError: null,
    nextAttemptAt: now(),
    expiresAt,
    createdAt: now(),
  }
  await db
    .insert(outboxMessages)
    .values({ ...row, userId, purpose })
    .onConflictDoUpdate({ target: [outboxMessages.userId, outboxMessages.purpose], set: row })
  return id
}

/** The message of a row. Throws when the row was written under another signing secret. */
export function readMessage(cipher: ContentCipher, row: OutboxMessageRow): OutboxMessage {
  return JSON.parse(cipher.decrypt(row.content, contextOf(row.id)).toString())
}

// Content that is copied to another row cannot be decrypted.
function contextOf(id: string): string {
  return `outbox message ${id}`
}

/**
 * Leases messages that are due. No other process reads them during the lease; when a process is
 * killed, its leases expire.
 */
export async function leaseMessages(
  { db, tables, now }: Store,
  lease: { readonly messagesMax: number; readonly leaseMs: number },
): Promise<OutboxMessageRow[]> {
  const { outboxMessages } = tables
  const at = now()
  const due = db
    .select({ id: outboxMessages.id })
    .from(outboxMessages)
    .where(lte(outboxMessages.nextAttemptAt, at))
    .orderBy(asc(outboxMessages.nextAttemptAt))
    .limit(lease.messagesMax)
    .for('update', { skipLocked: true })
  return db
    .update(outboxMessages)
    .set({
      attempts: increased(outboxMessages.attempts),
      nextAttemptAt: new Date(at.getTime() + lease.leaseMs),
    })
    .where(inArray(outboxMessages.id, due))
    .returning()
}

/** Deletes a message that was delivered, expired or dropped. */
export async function deleteMessage({ db, tables }: Store, id: string): Promise<void> {
  const { outboxMessages } = tables
  await db.delete(outboxMessages).where(eq(outboxMessages.id, id))
}

/** Records a failed attempt and the time of the next one. */
export async function postponeMessage(
  { db, tables }: Store,
  failed: { readonly id: string; readonly lastError: string; readonly nextAttemptAt: Date },
): Promise<void> {
  const { outboxMessages } = tables
  const { id, ...changes } = failed
  await db.update(outboxMessages).set(changes).where(eq(outboxMessages.id, id))
}

/** The state that metrics, `/admin` and `millrace doctor` show. */
export async function readOutboxState({
  db,
  tables,
}: Pick<Store, 'db' | 'tables'>): Promise<OutboxState> {
  const { outboxMessages } = tables
  const { lastError, createdAt } = outboxMessages
  const [all] = await db
    .select({ waiting: count(), failing: count(lastError), oldestAt: min(createdAt) })
    .from(outboxMessages)
  const { waiting = 0, failing = 0, oldestAt } = all ?? {}
  const findFailed = async (order: SQL) => {
    if (failing === 0) return undefined
    const failed = db
      .select({ createdAt, lastError })
      .from(outboxMessages)
      .where(isNotNull(lastError))
    return (await failed.orderBy(order).limit(1))[0]
  }
  return {
    waiting,
    failing,
    oldestAt: oldestAt ?? undefined,
    failingSince: (await findFailed(asc(createdAt)))?.createdAt,
    lastError: (await findFailed(desc(createdAt)))?.lastError ?? undefined,
  }
}
