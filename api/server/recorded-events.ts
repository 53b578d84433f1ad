import { ownActivity } from '#api/activities/own-activity.ts'
import {
  type SecurityEvent,
  securityActivity,
  subjectOf,
} from '#api/activities/security-activity.ts'
import { actorOf, type NoteEvent } from '#api/v1/events.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { eventIdOf, eventTypeOf, type NewEvent } from '#api/webhooks/event-types.ts'
import { findMemberships, membershipsOf } from '#shared/db/organizations.ts'
import type { EndpointRow } from '#shared/db/schema/webhooks.ts'

import type { Services } from './services.ts'

type Needs = Pick<Services, 'activityWriter' | 'clock' | 'background' | 'log'>

/** Records the actions of callers as activities of their organization. */
export function noteEvents(services: Needs): NoteEvent {
  const { activityWriter, clock } = services
  return (request, event) => {
    const { organizationId = callerOf(request).organizationId, ...rest } = event
    const actor = actorOf(request)
    const seen = { organizationId, actor, requestId: request.id }
    const activity = ownActivity({ ...rest, ...seen, atMs: clock.now() })
    activityWriter.write(activity)
    // A user who accepts an invitation is its actor.
    const subject = event.object.type === 'Person' ? event.object.id : actor
    announceUser(services, { ...activity, event: event.event, subject })
  }
}

/** Records security events of the user server as activities of the user's own organization. */
export function noteSecurityEvents(
  services: Needs & Pick<Services, 'database' | 'organizationTables'>,
): (event: SecurityEvent) => void {
  const { database, organizationTables, log, activityWriter } = services
  return (event) => {
    const userId = subjectOf(event)
    if (userId === undefined) return
    // A user who is being deleted must not get a new organization.
    const organizationsOf = event.action === 'user_deleted' ? findMemberships : membershipsOf
    organizationsOf(database.db, organizationTables, userId).then(
      ([own]) => {
        if (own === undefined) return
        const activity = securityActivity(event, { userId, organizationId: own.id })
        activityWriter.write(activity)
        const { event: name } = activity.content
        announceUser(services, { ...activity, event: String(name), subject: `user:${userId}` })
      },
      (error: unknown) =>
        log.error(
          { operation: 'activity.write', err: error, action: event.action },
          'not recorded',
        ),
    )
  }
}

/** Records that an endpoint was disabled, also to the other endpoints of its organization. */
export function noteDisabledEndpoint(
  services: Needs,
  { id, organizationId, disabledReason }: EndpointRow,
): void {
  const atMs = services.clock.now()
  services.activityWriter.write(
    ownActivity({
      type: 'Update',
      event: 'webhook.disabled',
      organizationId,
      atMs,
      actor: 'service:millrace',
      requestId: undefined,
      object: { id: `webhook_endpoint:${id}`, type: 'Service', reason: disabledReason },
    }),
  )
  announce(services, {
    organizationId,
    type: 'webhook.disabled',
    data: { id, reason: disabledReason },
    id: eventIdOf(atMs, `${id} disabled`),
  })
}

/** Announces an event to webhooks in the background. */
export function announce({ background, log }: Needs, event: NewEvent): void {
  background
    .announce([event])
    .catch((error: unknown) => log.warn({ operation: 'webhook.announce', err: error }, 'not sent'))
}

/** Announces an activity that concerns a user, if webhooks report its kind. */
function announceUser(
  services: Needs,
  activity: {
    readonly id: string
    readonly organizationId: string
    readonly publishedMs: number
    readonly event: string
    /** `user:<id>`. */
    readonly subject: string
  },
): void {
  const { id, organizationId, publishedMs, subject } = activity
  const type = eventTypeOf(activity.event)
  if (type?.startsWith('user.') !== true || !subject.startsWith(USER_PREFIX)) return
  announce(services, {
    organizationId,
    type,
    id: eventIdOf(publishedMs, id),
    data: { id: subject.slice(USER_PREFIX.length), organization_id: organizationId },
  })
}

const USER_PREFIX = 'user:'
