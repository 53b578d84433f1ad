import type { FastifyInstance, FastifyReply } from 'fastify'

/** What a page may do beyond showing itself. */
export interface PageRights {
  /** Whether it may ask for the microphone. */
  readonly isHearing: boolean
}

/** Every answer of a scope gets the headers of a page. */
export function registerPageHeaders(app: FastifyInstance, rights: PageRights): void {
  app.addHook('onRequest', async (_request, reply) => {
    setPageHeaders(reply, rights)
  })
}

/** The headers of a page: nothing from elsewhere, nothing inline, no frames. */
export function setPageHeaders(reply: FastifyReply, { isHearing }: PageRights): FastifyReply {
  return reply.headers({
    'content-security-policy': CONTENT_SECURITY_POLICY,
    'cross-origin-resource-policy': 'same-origin',
    // With none at all, browsers would hide the origin of our own forms from us, too.
    'referrer-policy': 'same-origin',
    'permissions-policy': `microphone=(${isHearing ? 'self' : ''}), camera=(), geolocation=(), payment=(), usb=()`,
  })
}

const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  // Pictures and recordings that were made or chosen here live in memory.
  "img-src 'self' blob:",
  "media-src 'self' blob:",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  // No text can become markup by way of the DOM, whatever a script does wrong.
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')
