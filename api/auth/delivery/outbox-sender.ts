import { HookError } from '#api/auth/errors.ts'
import { deliverByHook } from '#api/auth/hooks/deliver-by-hook.ts'
import type { AuthHooks } from '#api/auth/hooks/hooks.ts'
import type { Mailer, SmsSender } from '#api/auth/ports.ts'
import type { Store } from '#api/auth/store.ts'
import { type Clock, withinTime } from '#shared/clock.ts'
import type { OutboxMessageRow } from '#shared/db/schema/auth.ts'
import type { Logger } from '#shared/logger.ts'
import { ContentCipher } from '#shared/queue/content-cipher.ts'

import {
  deleteMessage,
  leaseMessages,
  type OutboxMessage,
  type OutboxState,
  postponeMessage,
  readMessage,
  readOutboxState,
  writeMessage,
} from './outbox.ts'

/** Why a message was deleted without delivery. */
export const DROP_REASONS = ['expired', 'rejected', 'attempts', 'unreadable'] as const
export type DropReason = (typeof DROP_REASONS)[number]

/** Mails and text messages: written within transactions, delivered after the commit. */
export interface MessageOutbox {
  /** Writes a message within the transaction of the store; returns its id. */
  write(store: Store, entry: Parameters<typeof writeMessage>[2]): Promise<string>
  /** Delivers and retries the messages of all processes until `close`. */
  start(): void
  /** Resolves when no delivery of this process is in flight. */
  idle(): Promise<void>
  state(): Promise<OutboxState>
  /** Stops, and waits for the deliveries in flight. */
  close(): Promise<void>
}

interface OutboxOptions {
  readonly store: Store
  readonly mailer: Mailer
  readonly sms: Pick<SmsSender, 'send'>
  readonly hooks: AuthHooks
  /** Encrypts waiting messages. Changing it also voids all typed codes. */
  readonly secret: string
  readonly clock: Clock
  readonly log: Logger
  readonly onDrop?: ((reason: DropReason) => void) | undefined
}

// Equals the connections of the mailer.
const IN_FLIGHT_MAX = 4
// Longer than a template, a mail and the gateway's answer may take together.
const LEASE_MS = 60_000
const POLL_MS = 1000
const FIRST_RETRY_MS = 2000
const RETRY_MS_MAX = 600_000
const ATTEMPTS_MAX = 20
// Metrics must be complete before the scraper times out, even without the database.
const STATE_TIMEOUT_MS = 2000

/** The outbox of one API process; several processes deliver from the same table. */
export function createOutbox(options: OutboxOptions): MessageOutbox {
  const { store, log } = options
  const cipher = new ContentCipher([options.secret])
  let timer: NodeJS.Timeout | undefined
  let isClosed = false
  let isWoken = false
  let draining: Promise<void> | undefined
  const drain = async (): Promise<void> => {
    try {
      do {
        isWoken = false
        const lease = { messagesMax: IN_FLIGHT_MAX, leaseMs: LEASE_MS }
        const rows = await leaseMessages(store, lease)
        await Promise.all(rows.map((row) => deliver(options, cipher, row)))
        if (rows.length === IN_FLIGHT_MAX) isWoken = true
      } while (isWoken && !isClosed)
    } catch (error) {
      log.warn({ operation: 'outbox.deliver', error: codesOf(error) }, 'the outbox was not read')
    } finally {
      draining = undefined
    }
  }
  const wake = (): void => {
    if (isClosed) return
    isWoken = true
    draining ??= drain()
  }
  return {
    async write(within, entry) {
      const id = await writeMessage(within, cipher, entry)
      within.afterCommit(wake)
      return id
    },
    start() {
      wake()
      timer = setInterval(wake, POLL_MS)
      timer.unref()
    },
    async idle() {
      while (draining !== undefined) await draining
    },
    state: () => withinTime(readOutboxState(store), STATE_TIMEOUT_MS, () => new Error('no answer')),
    async close() {
      isClosed = true
      clearInterval(timer)
      await draining
    },
  }
}

async function deliver(
  options: OutboxOptions,
  cipher: ContentCipher,
  row: OutboxMessageRow,
): Promise<void> {
  const { store, clock } = options
  if (row.expiresAt.getTime() <= clock.now()) return drop(options, row, 'expired')
  const message = decrypted(cipher, row)
  if (message === undefined) return drop(options, row, 'unreadable')
  try {
    if (!(await deliverByHook(options, row, message))) await send(options, message)
  } catch (error) {
    return postpone(options, row, error)
  }
  await deleteMessage(store, row.id)
}

function decrypted(cipher: ContentCipher, row: OutboxMessageRow): OutboxMessage | undefined {
  try {
    return readMessage(cipher, row)
  } catch {
    // The message was written under another signing secret, which also voids its code.
    return undefined
  }
}

async function send({ mailer, sms }: OutboxOptions, message: OutboxMessage): Promise<void> {
  switch (message.channel) {
    case 'email':
      return mailer.send(message.mail)
    case 'sms':
      await sms.send(message.sms)
      return
    case 'newUser':
    case 'none':
      return
  }
}

async function postpone(
  options: OutboxOptions,
  row: OutboxMessageRow,
  error: unknown,
): Promise<void> {
  const { store, clock, log } = options
  const lastError = codesOf(error)
  const { id, purpose, attempts } = row
  if (isRejected(error)) return drop(options, { ...row, lastError }, 'rejected')
  if (attempts >= ATTEMPTS_MAX) return drop(options, { ...row, lastError }, 'attempts')
  const failed = { operation: 'outbox.deliver', messageId: id, purpose, attempts, lastError }
  log.warn(failed, 'a message was not delivered and is tried again')
  const delayMs = Math.min(RETRY_MS_MAX, FIRST_RETRY_MS * 2 ** (attempts - 1))
  await postponeMessage(store, { id, lastError, nextAttemptAt: new Date(clock.now() + delayMs) })
}

async function drop(
  { store, log, onDrop }: OutboxOptions,
  { id, purpose, attempts, lastError }: OutboxMessageRow,
  reason: DropReason,
): Promise<void> {
  const dropped = { operation: 'outbox.drop', messageId: id, purpose, attempts, lastError, reason }
  log.error(dropped, 'a message is dropped: it was not delivered')
  onDrop?.(reason)
  await deleteMessage(store, id)
}

// After a 5yz reply a mail server must not receive the same message again (RFC 5321, 4.2.1). The
// operator has to repair refused credentials (530 to 538).
function isRejected(error: unknown): boolean {
  // The hook refused; 429 asks for a later attempt.
  if (error instanceof HookError) return error.status < 500 && error.status !== 429
  const { responseCode: code } = deepestOf(error)
  return typeof code === 'number' && code >= 550 && code < 560
}

// Connection failures, whose messages name the server but no recipient.
const CONNECTION_CODES: readonly unknown[] = ['ESOCKET', 'ECONNECTION', 'ETIMEDOUT', 'ETLS', 'EDNS']
const REASON_LENGTH_MAX = 200

/**
 * The codes of a failure, such as those of a mail server, and the reason if the connection failed.
 * Messages of servers are omitted, because they may repeat email addresses.
 */
function codesOf(error: unknown): string {
  const { name, code, responseCode, message } = deepestOf(error)
  const hasReason = CONNECTION_CODES.includes(code) && responseCode === undefined
  const reason = hasReason ? String(message).slice(0, REASON_LENGTH_MAX) : undefined
  return [code ?? name, responseCode, reason].filter((part) => part !== undefined).join(' ')
}

const CAUSES_MAX = 5

interface DeliveryFault {
  readonly name?: unknown
  readonly code?: unknown
  readonly message?: unknown
  readonly responseCode?: unknown
}

function deepestOf(error: unknown): DeliveryFault {
  let deepest: unknown = error
  for (let depth = 0; depth < CAUSES_MAX; depth += 1) {
    if (!(deepest instanceof Error) || !(deepest.cause instanceof Error)) break
    deepest = deepest.cause
  }
  return typeof deepest === 'object' && deepest !== null ? deepest : {}
}
