import { ownActivity } from '#api/activities/activities.ts'
import {
  type SecurityEvent,
  securityActivity,
  subjectOf,
} from '#api/activities/security-activity.ts'
import { actorOf, type NoteEvent } from '#api/v1/events.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { findMemberships, membershipsOf } from '#shared/db/organizations.ts'

import type { Services } from './services.ts'

type Needs = Pick<Services, 'activityWriter' | 'clock'>

/** Records the actions of callers as activities of their organization. */
export function noteEvents({ activityWriter, clock }: Needs): NoteEvent {
  return (request, event) => {
    const { organizationId = callerOf(request).organizationId, ...rest } = event
    const seen = { organizationId, actor: actorOf(request), requestId: request.id }
    activityWriter.write(ownActivity({ ...rest, ...seen, atMs: clock.now() }))
  }
}

/** Records security events of the user server as activities of the user's own organization. */
export function noteSecurityEvents(
  services: Needs & Pick<Services, 'database' | 'organizationTables' | 'log'>,
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
        activityWriter.write(securityActivity(event, { userId, organizationId: own.id }))
      },
      (error: unknown) =>
        log.error(
          { operation: 'activity.write', err: error, action: event.action },
          'not recorded',
        ),
    )
  }
}
