import { timeOrderedId } from '#shared/ids.ts'

import { digestOf, OWN_GENERATOR } from './activity.ts'
import type { OwnActivity } from './recording.ts'

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
  const { id = timeOrderedId('act_', event.atMs), type, actor, object, target } = event
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
    ...{ id, type, content, organizationId: event.organizationId, publishedMs: event.atMs },
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
