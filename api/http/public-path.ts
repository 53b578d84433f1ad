import type { FastifyRequest } from 'fastify'

/**
 * The path below which a proxy serves us to this client, as `/millrace`; empty at the root. A trusted proxy
 * may state it in `X-Forwarded-Prefix`; else it is that of the public address, for clients that came there.
 */
export function publicPathOf(request: FastifyRequest, publicUrl: string): string {
  const stated = forwardedPrefix(request)
  if (stated !== undefined) return stated
  const { host, pathname } = new URL(publicUrl)
  return host === plainHost(request) ? withoutUserServer(pathname) : ''
}

const PLAIN_PATH = /^(\/[\w.~%-]+)*\/?$/

// What is no plain path is nobody's: it would lead clients elsewhere.
function forwardedPrefix({ headers, ips }: FastifyRequest): string | undefined {
  const prefix = headers['x-forwarded-prefix']
  // Besides the one who connected, those are listed for whom a trusted proxy spoke.
  const isTrusted = ips !== undefined && ips.length > 1
  if (!isTrusted || typeof prefix !== 'string' || !PLAIN_PATH.test(prefix)) return undefined
  return withoutSlash(prefix)
}

// Without the port that the scheme implies, as in addresses.
function plainHost({ protocol, host }: FastifyRequest): string | undefined {
  return URL.parse(`${protocol}://${host}`)?.host
}

// Some state the address of the user server as Supabase's clients call it.
function withoutUserServer(pathname: string): string {
  return withoutSlash(pathname).replace(/\/auth\/v1$/, '')
}

function withoutSlash(path: string): string {
  return path.replace(/\/+$/, '')
}
