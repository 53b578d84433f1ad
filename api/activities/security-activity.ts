import type { OwnActivity } from './activity-store.ts'
import { type OwnObject, ownActivity } from './own-activity.ts'

/** The part of a user server's security event that is recorded as an activity. */
export interface SecurityEvent {
  readonly action: string
  /** The nil UUID when an administrator acted by role only. */
  readonly actorId: string
  readonly traits: Readonly<Record<string, unknown>>
  readonly requestId?: string | undefined
  readonly at: Date
}

/** The recorded events of the user server; all others appear only in its audit log. */
const RECORDED: Readonly<Record<string, { readonly type: string; readonly event: string }>> = {
  user_signedup: { type: 'Join', event: 'user.signed_up' },
  login: { type: 'Arrive', event: 'user.signed_in' },
  logout: { type: 'Leave', event: 'user.signed_out' },
  user_invited: { type: 'Invite', event: 'user.invited' },
  invite_accepted: { type: 'Accept', event: 'user.invitation_accepted' },
  user_deleted: { type: 'Delete', event: 'user.deleted' },
}

const NIL_UUID = '00000000-0000-0000-0000-000000000000'
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** The user of a security event; undefined when the event is not recorded as an activity. */
export function subjectOf({ action, actorId, traits }: SecurityEvent): string | undefined {
  if (RECORDED[action] === undefined) return undefined
  const named = traits.user_id
  const userId = typeof named === 'string' ? named : actorId
  return UUID.test(userId) && userId !== NIL_UUID ? userId : undefined
}

/** The activity of a security event, in the organization of its user. */
export function securityActivity(
  event: SecurityEvent,
  subject: { readonly userId: string; readonly organizationId: string },
): OwnActivity {
  const row = RECORDED[event.action]
  if (row === undefined) throw new Error(`${event.action} is not recorded`)
  const object: OwnObject = { id: `user:${subject.userId}`, type: 'Person' }
  return ownActivity({
    ...row,
    organizationId: subject.organizationId,
    actor: event.actorId === NIL_UUID ? 'service:administrator' : `user:${event.actorId}`,
    object,
    requestId: event.requestId,
    atMs: event.at.getTime(),
  })
}
