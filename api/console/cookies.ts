import { randomBytes } from 'node:crypto'

import type { FastifyReply, FastifyRequest } from 'fastify'

import { equals, SESSION_SECONDS } from './sessions.ts'

/** The cookie of a signed-in session. */
export const SESSION_COOKIE = 'millrace_admin'
/** The cookie whose value a form must repeat. */
const FORM_COOKIE = 'millrace_admin_form'

const FORM_SECRET = /^[\w-]{43}$/

/** Sets the session cookie; an empty value ends it. */
export function setSessionCookie(
  request: FastifyRequest,
  reply: FastifyReply,
  secret: string | undefined,
): void {
  const options = cookieOptions(request)
  if (secret === undefined) reply.clearCookie(SESSION_COOKIE, options)
  else reply.setCookie(SESSION_COOKIE, secret, { ...options, maxAge: SESSION_SECONDS })
}

/** The CSRF token of a form, bound to the browser by a cookie. */
export function formSecret(request: FastifyRequest, reply: FastifyReply): string {
  const known = request.cookies[FORM_COOKIE] ?? ''
  if (FORM_SECRET.test(known)) return known
  const secret = randomBytes(32).toString('base64url')
  reply.setCookie(FORM_COOKIE, secret, cookieOptions(request))
  return secret
}

/** Whether a form was sent by one of our pages instead of another site. */
export function isOwnForm(request: FastifyRequest, given: string | undefined): boolean {
  return isSameOrigin(request) && holdsFormSecret(request, given)
}

/** Whether a browser repeats the CSRF token of its cookie. */
export function holdsFormSecret(request: FastifyRequest, given: string | undefined): boolean {
  const known = request.cookies[FORM_COOKIE] ?? ''
  return FORM_SECRET.test(known) && equals(given ?? '', known)
}

/** Whether a request came from our pages or from a program. */
// Browsers send Sec-Fetch-Site; older ones at least the Origin of a POST.
export function isSameOrigin({ headers, host }: FastifyRequest): boolean {
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
    // Browsers drop a secure cookie over plain HTTP.
    secure: protocol === 'https',
  } as const
}
