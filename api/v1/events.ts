import type { FastifyRequest } from 'fastify'

import { callerOf } from './request-context.ts'

/** An action of a caller on the platform, in terms of Activity Streams. */
interface CallerEvent {
  readonly type: string
  /** Dotted name, such as `key.created`. */
  readonly event: string
  readonly object: EventObject
  readonly target?: EventObject
  /** The caller's if absent. */
  readonly organizationId?: string
}

/**
 * The id of the object, such as `key:key_…`, its type and descriptive fields, without secrets and
 * prompts.
 */
interface EventObject {
  readonly id: string
  readonly type: string
  readonly [detail: string]: string | number | boolean | null | undefined
}

/** Records an action of a caller in the background. */
export type NoteEvent = (request: FastifyRequest, event: CallerEvent) => void

/** The actor id of the caller. */
export function actorOf(request: FastifyRequest): string {
  const { userId, apiKeyId } = callerOf(request)
  return userId === undefined ? `key:${apiKeyId ?? ''}` : `user:${userId}`
}
