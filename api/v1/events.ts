import type { FastifyRequest } from 'fastify'

import { callerOf } from './request-context.ts'

/** Something that a caller did to the platform, in words of Activity Streams. */
interface CallerEvent {
  readonly type: string
  /** Dotted name, such as `key.created`. */
  readonly event: string
  readonly object: EventObject
  readonly target?: EventObject
  /** The caller's, unless it is said. */
  readonly organizationId?: string
}

/**
 * A thing by its id, such as `key:key_…`, its type and what describes it: no secrets, no prompts.
 */
interface EventObject {
  readonly id: string
  readonly type: string
  readonly [detail: string]: string | number | boolean | null | undefined
}

/** Notes what a caller did, in the background. */
export type NoteEvent = (request: FastifyRequest, event: CallerEvent) => void

/** How the caller of a request is named as an actor. */
export function actorOf(request: FastifyRequest): string {
  const { userId, apiKeyId } = callerOf(request)
  return userId === undefined ? `key:${apiKeyId ?? ''}` : `user:${userId}`
}
