import { timeOrderedId } from '#shared/ids.ts'

import type { OwnActivity } from './activities.ts'
import { digestOf, OWN_GENERATOR } from './activity.ts'

/** A thing that something was done to: an id such as `key:key_…`, a type and what describes it. */
export interface OwnObject {
  readonly id: string
  readonly type: string
  readonly [detail: string]: string | number | boolean | null | undefined
}

/** What happened, as the platform saw it. */
export interface OwnEvent {
  /** A word of Activity Streams. */
  readonly type: string
  /** Dotted name, such as `key.created`. */
  readonly event: string
  readonly organizationId: string
  /** `user:<id>`, `key:<id>`, or whoever else it was. */
  readonly actor: string
  readonly object: OwnObject
  readonly target?: OwnObject
  readonly requestId: string | undefined
  readonly atMs: number
  /** What is recorded under an id once stays as it is; a fresh one is made when absent. */
  readonly id?: string
}

/** The record of something that the platform saw, in the form in which clients read activities. */
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

/** As text, for the journal. */
export function encodeActivity(activity: OwnActivity): string {
  return JSON.stringify({ ...activity, digest: undefined })
}

/** Reads what `encodeActivity` wrote. */
export function decodeActivity(text: string): OwnActivity {
  const activity = JSON.parse(text) as Omit<OwnActivity, 'digest'>
  return { ...activity, digest: digestOf(activity.content) }
}
