import type { UsageRow } from '#shared/db/schema/usage.ts'
import { timeOrderedId } from '#shared/ids.ts'

import { digestOf, OWN_GENERATOR, OWN_ID_PREFIX } from './activity.ts'
import type { OwnActivity } from './activity-store.ts'

/** The object of an activity: an id such as `key:key_…`, a type and descriptive fields. */
export interface OwnObject {
  readonly id: string
  readonly type: string
  readonly [detail: string]: string | number | boolean | null | undefined
}

/** An event that the platform records. */
interface OwnEvent {
  /** A type of Activity Streams. */
  readonly type: string
  /** Dotted name, such as `key.created`. */
  readonly event: string
  readonly organizationId: string
  /** `user:<id>`, `key:<id>` or another actor. */
  readonly actor: string
  readonly object: OwnObject
  readonly target?: OwnObject
  readonly requestId: string | undefined
  readonly atMs: number
  /** Makes recording idempotent; a new id is generated when absent. */
  readonly id?: string
}

/** The activity of a platform event, in the form in which clients read activities. */
export function ownActivity(event: OwnEvent): OwnActivity {
  const { id = timeOrderedId(OWN_ID_PREFIX, event.atMs), type, actor, object, target } = event
  const content = {
    type,
    actor,
    object,
    ...(target !== undefined && { target }),
    published: new Date(event.atMs).toISOString(),
    generator: OWN_GENERATOR,
    event: event.event,
    ...(event.requestId !== undefined && { request_id: event.requestId }),
  }
  return {
    id,
    type,
    content,
    organizationId: event.organizationId,
    publishedMs: event.atMs,
    actorId: actor,
    objectId: object.id,
    digest: digestOf(content),
  }
}

/** Serializes an activity for the journal. */
export function encodeActivity(activity: OwnActivity): string {
  return JSON.stringify({ ...activity, digest: undefined })
}

/** Parses the output of `encodeActivity`. */
export function decodeActivity(text: string): OwnActivity {
  const activity = JSON.parse(text) as Omit<OwnActivity, 'digest'>
  return { ...activity, digest: digestOf(activity.content) }
}

/** The activities of ended jobs; each is recorded once, however often it is reported. */
export function jobActivities(rows: readonly UsageRow[]): readonly OwnActivity[] {
  // A line of a batch is run again until it is answered: its earlier runs are not activities.
  const isRunAgain = ({ jobId, requestId, outcome }: UsageRow): boolean =>
    jobId === requestId && outcome !== 'finished'
  return rows.filter((row) => !isRunAgain(row)).map(jobActivity)
}

function jobActivity(row: UsageRow): OwnActivity {
  return ownActivity({
    id: `${OWN_ID_PREFIX}${row.jobId}${row.outcome === 'finished' ? '' : `_${row.outcome}`}`,
    type: 'Create',
    event: `job.${row.outcome}`,
    organizationId: row.organizationId,
    actor: actorOf(row),
    object: {
      id: `job:${row.jobId}`,
      type: 'Job',
      kind: row.kind,
      model: row.modelId,
      prompt_tokens: row.promptTokens,
      completion_tokens: row.completionTokens,
      cached_tokens: row.cachedTokens,
    },
    requestId: row.requestId ?? undefined,
    atMs: row.createdAt.getTime(),
  })
}

function actorOf({ userId, apiKeyId }: UsageRow): string {
  if (userId !== null) return `user:${userId}`
  return apiKeyId === null ? 'service:millrace' : `key:${apiKeyId}`
}
