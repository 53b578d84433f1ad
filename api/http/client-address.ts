import { isIP } from 'node:net'

import type { FastifyRequest } from 'fastify'

/**
 * An IP address in canonical form: without brackets, port and zone, IPv4-mapped IPv6 as IPv4. Any
 * other text is returned unchanged; a disconnected client has none.
 */
export function plainAddress(text: string | undefined = ''): string {
  const written = text.trim().replace(/^"(.*)"$/, '$1')
  const bare = (
    /^\[([^\]]+)\](?::\d+)?$/.exec(written)?.[1] ?? written.replace(/^([\d.]+):\d+$/, '$1')
  ).replace(/%.*$/, '')
  if (isIP(bare) === 4) return bare
  if (isIP(bare) !== 6) return written
  const groups = groupsOf(bare)
  const isDressedUp = groups.slice(0, 6).join(':') === '0:0:0:0:0:ffff'
  return isDressedUp ? dotted(groups.slice(6)) : compressed(bare)
}

/**
 * The client that a header such as X-Forwarded-For names: the first entry of a list. An IPv6 client
 * owns the 2^64 addresses of its network, so the /64 network counts as one client.
 */
export function clientOf(header: string | undefined = ''): string {
  const address = plainAddress(header.split(',')[0] ?? '')
  return isIP(address) === 6 ? `${groupsOf(address).slice(0, 4).join(':')}::/64` : address
}

/**
 * The network of a client: that of the configured header where the request has it, else that of the
 * address which the socket or a trusted proxy gives (MILLRACE_TRUSTED_PROXIES).
 */
export function networkOf(request: FastifyRequest, header = ''): string {
  const named = header === '' ? undefined : request.headers[header]
  return clientOf((typeof named === 'string' && named) || request.ip)
}

// The parser of addresses writes every IPv6 address in its shortest form, in lower case.
function compressed(address: string): string {
  return new URL(`http://[${address}]`).hostname.slice(1, -1)
}

function groupsOf(address: string): string[] {
  const [left = [], right = []] = compressed(address)
    .split('::')
    .map((side) => (side === '' ? [] : side.split(':')))
  const zeros = Array.from({ length: 8 - left.length - right.length }, () => '0')
  return [...left, ...zeros, ...right]
}

function dotted(groups: readonly string[]): string {
  return groups
    .map((group) => Number.parseInt(group, 16))
    .flatMap((group) => [group >> 8, group & 255])
    .join('.')
}
