import type { FastifyInstance, FastifyReply } from 'fastify'

/** Permissions of a page. */
interface PageRights {
  /** Whether it may use the microphone. */
  readonly usesMicrophone: boolean
}

/** Adds the headers of a page to every answer of a scope. */
export function registerPageHeaders(app: FastifyInstance, rights: PageRights): void {
  app.addHook('onRequest', async (_request, reply) => {
    setPageHeaders(reply, rights)
  })
}

/** The headers of a page: no external resources, nothing inline, no frames. */
export function setPageHeaders(reply: FastifyReply, { usesMicrophone }: PageRights): FastifyReply {
  return reply.headers({
    'content-security-policy': CONTENT_SECURITY_POLICY,
    'cross-origin-resource-policy': 'same-origin',
    // With `no-referrer`, browsers would send `Origin: null` with our own forms.
    'referrer-policy': 'same-origin',
    'permissions-policy': `microphone=(${usesMicrophone ? 'self' : ''}), camera=(), geolocation=(), payment=(), usb=()`,
  })
}

const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  // Images and recordings created in the page are blob URLs.
  "img-src 'self' blob:",
  "media-src 'self' blob:",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  // Trusted types: no script can turn text into markup.
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')
