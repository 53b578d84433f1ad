import { derivedId } from '#api/v1/request-context.ts'

/** The event types that an endpoint can receive. */
export const EVENT_TYPES = [
  'response.completed',
  'response.incomplete',
  'response.failed',
  'response.cancelled',
  'job.completed',
  'job.incomplete',
  'job.failed',
  'job.cancelled',
  'job.expired',
  'batch.completed',
  'batch.failed',
  'batch.expired',
  'batch.cancelled',
  'fine_tuning.job.succeeded',
  'fine_tuning.job.failed',
  'fine_tuning.job.cancelled',
  'file.stored',
  'file.deleted',
  'user.signed_up',
  'user.signed_in',
  'user.signed_out',
  'user.invited',
  'user.invitation_accepted',
  'user.deleted',
  'user.added',
  'user.removed',
  'webhook.disabled',
  'webhook.test',
] as const

export type EventType = (typeof EVENT_TYPES)[number]

/** An event before it is assigned to endpoints. */
export interface NewEvent {
  readonly organizationId: string
  /** Identical for repeated announcements of the same event. */
  readonly id: string
  readonly type: EventType
  readonly data: Readonly<Record<string, unknown>>
}

const ID_CHARS = 14

/**
 * The id of an event: it sorts by the time of the event, and repeated announcements of one event
 * have the same id.
 */
export function eventIdOf(atMs: number, source: string): string {
  return derivedId(`evt_${atMs.toString(36).padStart(10, '0')}`, source, ID_CHARS)
}

/** The event types of the activities that webhooks report, by activity. */
const ACTIVITY_EVENTS: Readonly<Record<string, EventType>> = {
  'invitation.accepted': 'user.added',
  'member.removed': 'user.removed',
}

/** The event type under which webhooks report an activity; undefined for most activities. */
export function eventTypeOf(activity: string): EventType | undefined {
  return ACTIVITY_EVENTS[activity] ?? EVENT_TYPES.find((type) => type === activity)
}
