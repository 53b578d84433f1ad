import type { AuthRequest } from '#api/auth/context.ts'
import type { AuthServices } from '#api/auth/services.ts'
import type { Store } from '#api/auth/store.ts'

import { type Actor, type AuditAction, appendAudit, type SecurityEvent } from './audit-log.ts'

/** Writes a security event to the audit log and to the log, and passes it to the listener. */
export async function record(
  services: AuthServices,
  store: Store,
  event: {
    readonly request: AuthRequest
    readonly actor: Actor
    readonly action: AuditAction
    readonly traits?: Readonly<Record<string, unknown>>
  },
): Promise<void> {
  const { request, ...entry } = event
  const written = await appendAudit(store, { ...entry, ip: request.ip })
  store.afterCommit(() => announce(services, request, written))
}

/** Passes an event that is already in the audit log to the log and the listener. */
export function announce(services: AuthServices, request: AuthRequest, event: SecurityEvent): void {
  const { action, logType, actorId } = event
  const authEvent = { action, logType, actorId }
  services.log.info({ operation: 'auth.event', authEvent }, 'security event')
  services.onSecurityEvent({ ...event, requestId: request.requestId })
}
