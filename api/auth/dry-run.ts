import { randomInt, randomUUID } from 'node:crypto'

import type { UserRow } from '#shared/db/schema/auth.ts'
import { failure } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import type { AuthRequest } from './context.ts'
import type { Contact } from '#api/auth/users/contact.ts'
import { insertUser } from '#api/auth/users/users.ts'
import type { AuthServices } from './services.ts'

/**
 * Runs the same statements in a transaction that is rolled back, so that unknown addresses take as
 * long as known ones. No message is sent, none is counted, and no event is recorded.
 */
export async function dryRun(
  services: AuthServices,
  work: (stage: AuthServices) => Promise<unknown>,
): Promise<void> {
  const { store, limits } = services
  const curtain = new Error('the end of a rehearsal')
  try {
    await store.db.transaction(async (db) => {
      await work({
        ...services,
        store: { ...store, db },
        mailer: { send: async () => undefined },
        limits: { ...limits, takeSend: (channel) => limits.checkSend(channel) },
        log: SILENCE,
        onSecurityEvent: () => undefined,
      })
      throw curtain
    })
  } catch (error) {
    if (error !== curtain) throw error
  }
}

/** A contact that belongs to no user: the top-level domain `invalid` is reserved for that. */
export function decoyContact(kind: Contact['kind']): Contact {
  return kind === 'email'
    ? { kind, email: `${randomUUID()}@nobody.invalid` }
    : { kind, phone: `999${String(randomInt(0, 10 ** 12)).padStart(12, '0')}` }
}

/** A temporary user row, removed by the rollback. */
export async function insertDecoyUser(stage: AuthServices, request: AuthRequest): Promise<UserRow> {
  const { email } = decoyContact('email') as { readonly email: string }
  const user = await insertUser(stage.store, { aud: request.audience, role: '', email })
  if (user === undefined) throw failure.internal('The rehearsal has no user.')
  return user
}

const nothing = (): void => undefined
const SILENCE: Logger = {
  fatal: nothing,
  error: nothing,
  warn: nothing,
  info: nothing,
  debug: nothing,
  child: () => SILENCE,
}
