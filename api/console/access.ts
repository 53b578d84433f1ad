import type { FastifyRequest } from 'fastify'

import { failure } from '#shared/errors.ts'

/** The roles of the console, each with the rights of those before it. */
export const CONSOLE_ROLES = ['viewer', 'operator', 'administrator'] as const

/**
 * A viewer reads; an operator also acts on queues, jobs, webhooks and models; an administrator also
 * acts on organizations, users and keys.
 */
export type ConsoleRole = (typeof CONSOLE_ROLES)[number]

/** The signed-in person, or the holder of an administrator's credential. */
export interface Administrator {
  readonly role: ConsoleRole
  /** An email address, or the name of the credential. */
  readonly name: string
  /** Absent for the admin token and for access tokens without a user. */
  readonly userId?: string
  /** How the request was authenticated; browsers send cookies and Basic passwords by themselves. */
  readonly credential: 'session' | 'header'
}

/** The console role that a value names. */
export function findConsoleRole(value: unknown): ConsoleRole | undefined {
  return CONSOLE_ROLES.find((role) => role === value)
}

/** The administrator of a request. Only routes behind the guard may use it. */
export function administratorOf({ context }: Pick<FastifyRequest, 'context'>): Administrator {
  if (context.administrator === undefined) throw new Error('the route is not behind the guard')
  return context.administrator
}

/** Whether a user has at least a role. */
export function hasRole({ role }: Administrator, least: ConsoleRole): boolean {
  return CONSOLE_ROLES.indexOf(role) >= CONSOLE_ROLES.indexOf(least)
}

/** Throws `accessDenied` below a role. */
export function requireRole(administrator: Administrator, least: ConsoleRole): void {
  if (hasRole(administrator, least)) return
  const { role } = administrator
  throw failure.accessDenied(`This needs the console role '${least}'; yours is '${role}'.`, {
    code: 'insufficient_permissions',
  })
}
