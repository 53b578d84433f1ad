/** The events that an endpoint can receive. */
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

/** An event, before it is known who receives it. */
export interface NewEvent {
  readonly organizationId: string
  /** The same for the same event, however often it is announced. */
  readonly id: string
  readonly type: EventType
  readonly data: Readonly<Record<string, unknown>>
}
