import type { FastifyRequest } from 'fastify'

/**
 * The path prefix under which a proxy serves this client, such as `/millrace`; empty at the root. A
 * trusted proxy may state it in `X-Forwarded-Prefix`; otherwise it is the prefix of the public URL,
 * for clients that used that host.
 */
export function publicPathOf(request: FastifyRequest, publicUrl: string): string {
  const stated = forwardedPrefix(request)
  if (stated !== undefined) return stated
  const { host, pathname } = new URL(publicUrl)
  return host === plainHost(request) ? withoutUserServer(pathname) : ''
}

/** The public URL without the user server's prefix, for requests that no client sends. */
export function publicBaseOf(publicUrl: string): string {
  const { origin, pathname } = new URL(publicUrl)
  return origin + withoutUserServer(pathname)
}

const PLAIN_PATH = /^(\/[\w.~%-]+)*\/?$/

// A prefix that is not a plain path is ignored: it would redirect clients elsewhere.
function forwardedPrefix({ headers, ips }: FastifyRequest): string | undefined {
  const prefix = headers['x-forwarded-prefix']
  // The connected peer, and the proxies that a trusted proxy lists.
  const isTrusted = ips !== undefined && ips.length > 1
  if (!isTrusted || typeof prefix !== 'string' || !PLAIN_PATH.test(prefix)) return undefined
  return withoutSlash(prefix)
}

// Without the default port of the scheme, as in URLs.
function plainHost({ protocol, host }: FastifyRequest): string | undefined {
  return URL.parse(`${protocol}://${host}`)?.host
}

// The public URL may include the user server's prefix, as Supabase clients configure it.
function withoutUserServer(pathname: string): string {
  return withoutSlash(pathname).replace(/\/auth\/v1$/, '')
}

function withoutSlash(path: string): string {
  return path.replace(/\/+$/, '')
}
