import { findMemberships, membershipsOf } from '#shared/db/organizations.ts'

import { ownActivity } from './activities/own-activity.ts'
import { securityActivity, subjectOf, type SecurityEvent } from './activities/security-activity.ts'
import type { Services } from './services.ts'
import { callerOf } from './v1/caller.ts'
import { actorOf, type NoteEvent } from './v1/events.ts'

type Needs = Pick<Services, 'activityWriter' | 'clock'>

/** Notes what callers do to the platform among the activities of their organization. */
export function noteEvents({ activityWriter, clock }: Needs): NoteEvent {
  return (request, event) => {
    const { organizationId = callerOf(request).organizationId, ...rest } = event
    const seen = { organizationId, actor: actorOf(request), requestId: request.id }
    activityWriter.write(ownActivity({ ...rest, ...seen, atMs: clock.now() }))
  }
}

/** Notes what the user server says among the activities of the organization of the user's own. */
export function noteSecurityEvents(
  services: Needs & Pick<Services, 'database' | 'organizationTables' | 'log'>,
): (event: SecurityEvent) => void {
  const { database, organizationTables, log, activityWriter } = services
  return (event) => {
    const userId = subjectOf(event)
    if (userId === undefined) return
    // Whoever is deleted at this moment must not be given a new one.
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
