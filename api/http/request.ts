import type { IncomingMessage, ServerResponse } from 'node:http'
import { isIP } from 'node:net'

import type { FastifyInstance, FastifyRequest } from 'fastify'

import type { HttpObserver } from '#api/telemetry/observe-requests.ts'
import { requestId } from '#shared/ids.ts'
import type { Logger } from '#shared/logger.ts'

const SAFE = /^[A-Za-z0-9_.:-]{1,64}$/

/**
 * The id of a request: taken from the configured header when its value is harmless, else generated.
 */
export function requestIdFrom(header: string): (request: IncomingMessage) => string {
  return (request) => {
    const inherited = header === '' ? undefined : request.headers[header]
    return typeof inherited === 'string' && SAFE.test(inherited) ? inherited : requestId()
  }
}

/** The path of a URL, without its query. */
export function pathOf(url: string): string {
  return url.split('?', 1)[0] as string
}

/** The first path segment, which selects the surface; undefined at the root. */
export function firstSegmentOf(url: string): string | undefined {
  return pathOf(url)
    .split('/')
    .find((part) => part !== '')
}

// Clients append their paths to a base URL that ends in a slash.
const BASE_PATH = /^\/+(?:(?:auth\/+)?v[12]\/+)?/

/**
 * The URL that is routed. Doubled slashes at the beginning, after `/v1` or at the end are joined,
 * and `/v1/models/` means `/v1/models`; other surfaces have routes that end in a slash. Any other
 * empty segment stays: it is an empty path parameter, which no route accepts.
 */
export function routedUrl(url: string): string {
  const path = pathOf(url)
  if (!path.endsWith('/') && !path.includes('//')) return url
  const base = BASE_PATH.exec(path)?.[0] ?? ''
  const end = endOfPath(path, base.length)
  const isBelowV1 = /^\/+v1\//.test(base)
  const ending = end === path.length || end === base.length || isBelowV1 ? '' : '/'
  return joinSlashes(base) + path.slice(base.length, end) + ending + url.slice(path.length)
}

/** Whether a path parameter is empty. Only the wildcard `*` may be empty. */
export function hasEmptyParameter(params: unknown): boolean {
  return Object.entries(params ?? {}).some(([name, value]) => value === '' && name !== '*')
}

/** The index at which the slashes at the end of a path begin. */
function endOfPath(path: string, start: number): number {
  let end = path.length
  while (end > start && path[end - 1] === '/') end--
  return end
}

function joinSlashes(path: string): string {
  return path
    .split('/')
    .filter((segment, index, all) => segment !== '' || index === 0 || index === all.length - 1)
    .join('/')
}

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
 * The network of a client: the one in the configured header if the request has it, else that of the
 * address of the socket or of a trusted proxy (MILLRACE_TRUSTED_PROXIES).
 */
export function networkOf(request: FastifyRequest, header = ''): string {
  const named = header === '' ? undefined : request.headers[header]
  return clientOf((typeof named === 'string' && named) || request.ip)
}

// The address parser writes every IPv6 address in its shortest form, in lower case.
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

// The status that proxies log for a client that disconnected before its answer was complete.
const STATUS_CLIENT_LEFT = 499

/**
 * Logs one line per request when its answer ends for any reason, and adds the request id to every
 * answer. The observer receives the same start and end.
 */
export function registerRequestLog(
  app: FastifyInstance,
  log: Logger,
  observer?: HttpObserver,
): void {
  app.addHook('onRequest', (request, reply, next) => {
    reply.header('x-request-id', request.id)
    const observed = observer?.begin(request)
    const goOn = (): void => {
      whenOver(reply.raw, (isComplete) => {
        const status = isComplete ? reply.statusCode : STATUS_CLIENT_LEFT
        observed?.end(status)
        log.info(
          {
            operation: 'http.request',
            requestId: request.id,
            ...(observed?.traceId !== undefined && { traceId: observed.traceId }),
            method: request.method,
            route: request.routeOptions.url ?? 'unknown',
            status,
            durationMs: Math.round(reply.elapsedTime * 10) / 10,
          },
          isComplete ? 'request finished' : 'client left',
        )
      })
      next()
    }
    if (observed === undefined) goOn()
    else observed.run(goOn)
  })
  if (observer === undefined) return
  // The body was read in the context of its socket, so the trace context is restored here.
  app.addHook('preValidation', (request, _reply, next) => observer.resume(request, next))
}

/** Calls back once, when an answer is sent or its connection closes. */
export function whenOver(response: ServerResponse, onOver: (isComplete: boolean) => void): void {
  let isOver = false
  const end = (): void => {
    if (isOver) return
    isOver = true
    onOver(response.writableFinished)
  }
  response.once('finish', end)
  response.once('close', end)
}
