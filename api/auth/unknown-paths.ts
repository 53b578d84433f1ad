import type { FastifyReply, FastifyRequest } from 'fastify'

import { refuse, UNKNOWN } from './plugin.ts'
import { ROUTES } from './routes.ts'

// Path prefixes of newer servers, which their clients may request.
const NEWER = ['oauth', 'passkeys', 'saml']

/** The first segments of paths at the root under which only clients of the user server ask. */
export const USER_SERVER_SEGMENTS: ReadonlySet<string> = new Set([
  ...ROUTES.map(({ path }) => path.split('/')[1] as string),
  ...NEWER,
])

/** 404 in the form that clients of the user server read. */
export function answerUnknownPath(request: FastifyRequest, reply: FastifyReply): FastifyReply {
  return refuse(request, reply, UNKNOWN)
}
