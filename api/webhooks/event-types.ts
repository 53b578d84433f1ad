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
  'file.stored',
  'file.deleted',
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
