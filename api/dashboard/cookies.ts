import { randomBytes } from 'node:crypto'

import type { FastifyReply, FastifyRequest } from 'fastify'

import { equals, SESSION_SECONDS } from './sessions.ts'

/** The cookie of somebody who has signed in. */
export const SESSION_COOKIE = 'millrace_admin'
/** The cookie that must come with a form that shows the same value. */
export const FORM_COOKIE = 'millrace_admin_form'

const FORM_SECRET = /^[\w-]{43}$/

/** Keeps a session in the browser; no value ends it. */
export function setSessionCookie(
  request: FastifyRequest,
  reply: FastifyReply,
  secret: string | undefined,
): void {
  const options = cookieOptions(request)
  if (secret === undefined) reply.clearCookie(SESSION_COOKIE, options)
  else reply.setCookie(SESSION_COOKIE, secret, { ...options, maxAge: SESSION_SECONDS })
}

/** What a form must carry, so that only a page of ours can send it; known to the browser by cookie. */
export function formSecret(request: FastifyRequest, reply: FastifyReply): string {
  const known = request.cookies[FORM_COOKIE] ?? ''
  if (FORM_SECRET.test(known)) return known
  const secret = randomBytes(32).toString('base64url')
  reply.setCookie(FORM_COOKIE, secret, cookieOptions(request))
  return secret
}

/** Whether a form was sent by a page of ours, and not by another site through the same browser. */
export function isOwnForm(request: FastifyRequest, given: string | undefined): boolean {
  if (!isSameOrigin(request)) return false
  const known = request.cookies[FORM_COOKIE] ?? ''
  return FORM_SECRET.test(known) && equals(given ?? '', known)
}

// Browsers say where a request comes from; the older ones at least in the Origin of a POST.
function isSameOrigin({ headers, host }: FastifyRequest): boolean {
  const { origin } = headers
  const site = headers['sec-fetch-site']
  if (site !== undefined) return site === 'same-origin'
  return origin === undefined || (URL.canParse(origin) && new URL(origin).host === host)
}

function cookieOptions({ protocol }: FastifyRequest) {
  return {
    path: '/admin',
    httpOnly: true,
    sameSite: 'strict',
    // Over plain HTTP, as on one's own machine, browsers would drop a secure cookie.
    secure: protocol === 'https',
  } as const
}
