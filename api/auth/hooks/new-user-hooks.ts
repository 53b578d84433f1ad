import { randomUUID } from 'node:crypto'

import { record } from '#api/auth/audit/record.ts'
import type { AuthRequest } from '#api/auth/context.ts'
import { HookError } from '#api/auth/errors.ts'
import type { AuthServices } from '#api/auth/services.ts'
import type { Store } from '#api/auth/store.ts'
import type { Metadata, UserRow } from '#shared/db/schema/auth.ts'

/** A user who is about to be created. */
export interface Candidate {
  /** Undefined for anonymous users. */
  readonly provider: string | undefined
  readonly email?: string | undefined
  readonly phone?: string | undefined
  readonly userMetadata?: Metadata | undefined
}

/**
 * Asks the hook whether a user may be created; returns the id for the user. It must run outside
 * transactions, because a slow receiver must not hold connections. Undefined without a hook.
 */
export async function approveNewUser(
  services: AuthServices,
  request: AuthRequest,
  candidate: Candidate,
): Promise<string | undefined> {
  if (!services.hooks.isEnabled('beforeUserCreated')) return undefined
  const id = randomUUID()
  const user = presentCandidate(services, request, { id, candidate })
  const metadata = describeCall('before-user-created', request.ip, services.store.now())
  try {
    await services.hooks.invoke('beforeUserCreated', { metadata, user })
  } catch (error) {
    if (error instanceof HookError) {
      const name = candidate.email ?? candidate.phone ?? ''
      await record(services, services.store, {
        request,
        actor: { kind: 'stranger', name },
        action: 'hook_rejected',
        traits: { hook: 'beforeUserCreated' },
      })
    }
    throw error
  }
  return id
}

/** Announces a new user to the hook after the commit, through the outbox. */
export async function announceNewUser(
  services: AuthServices,
  store: Store,
  request: Pick<AuthRequest, 'ip'>,
  user: Pick<UserRow, 'id'>,
): Promise<void> {
  if (!services.hooks.isEnabled('afterUserCreated')) return
  await services.outbox.write(store, {
    userId: user.id,
    purpose: 'after_user_created',
    message: { channel: 'newUser', ip: request.ip },
    expiresAt: new Date(services.clock.now() + ANNOUNCEMENT_TTL_MS),
  })
}

const ANNOUNCEMENT_TTL_MS = 86_400_000

/** The metadata of a call: user, time and client address. */
function describeCall(name: string, ip: string, at: Date): Readonly<Record<string, unknown>> {
  return { uuid: randomUUID(), time: at.toISOString(), name, ip_address: ip }
}

function presentCandidate(
  services: AuthServices,
  request: AuthRequest,
  { id, candidate }: { readonly id: string; readonly candidate: Candidate },
): Readonly<Record<string, unknown>> {
  const { provider, email = '', phone = '', userMetadata = {} } = candidate
  const now = services.store.now().toISOString()
  return {
    id,
    aud: request.audience,
    role: services.config.jwt.defaultGroupName,
    email,
    phone,
    app_metadata: provider === undefined ? {} : { provider, providers: [provider] },
    user_metadata: userMetadata,
    identities: [],
    created_at: now,
    updated_at: now,
    is_anonymous: provider === undefined,
  }
}
