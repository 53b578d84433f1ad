import type { LookupAddress } from 'node:dns'
import { type IncomingMessage, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { isIP, type LookupFunction } from 'node:net'

import type { KeepAliveAgents } from './keep-alive-agents.ts'
import { isPublicAddress } from './private-addresses.ts'
import { createHostResolver, type ResolveHost, resolveBySystem } from './resolve-host.ts'

/** The reason for which a call to an external server failed. */
export type OutgoingFailure = 'address' | 'protocol' | 'timeout' | 'size' | 'redirects' | 'network'

/** A call without an answer; the message contains no secret of the request. */
export class OutgoingError extends Error {
  readonly reason: OutgoingFailure

  constructor(reason: OutgoingFailure, message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'OutgoingError'
    this.reason = reason
  }
}

/** One call. */
export interface OutgoingRequest {
  readonly url: string
  readonly method?: 'GET' | 'POST'
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Sent form-encoded. */
  readonly form?: Readonly<Record<string, string>>
  /** Sent as JSON in place of a form. */
  readonly json?: string
  readonly signal?: AbortSignal
}

/** The answer; its body is within the size limit. */
export interface OutgoingReply {
  readonly status: number
  readonly contentType: string
  /** Empty when the server sends no Retry-After header. */
  readonly retryAfter: string
  readonly text: string
  readonly bytes: Buffer
}

/** Calls an external server. */
export type GuardedFetch = (request: OutgoingRequest) => Promise<OutgoingReply>

/** The limits of a client. */
export interface GuardedFetchOptions {
  readonly timeoutMs: number
  /** The largest body that is read, in bytes. */
  readonly bodyBytesMax?: number
  /** The number of redirects that a GET may follow; each target is checked like the first. */
  readonly redirectsMax?: number
  /** Whether IP addresses outside the public internet are allowed. */
  readonly allowsPrivateAddresses: boolean
  /** Rewrites hosts, for instance to a local server that replaces a provider in tests. */
  readonly rewrite?: (url: URL) => URL
  /**
   * The DNS lookup. By default, clients that may reach private addresses ask the operating system,
   * because the operator chose their hosts; other clients ask the name servers.
   */
  readonly resolve?: ResolveHost
  /**
   * Agents whose connections later calls of the same client reuse; if absent, each call has its
   * own.
   */
  readonly agents?: Pick<KeepAliveAgents, 'http' | 'https'>
}

const BODY_BYTES_MAX = 1_048_576 // 1 MiB: profiles and key sets take kilobytes

/**
 * Creates the client for calls to external servers. Every IP address of a name is checked when
 * connecting, and the connection uses the checked address, so DNS rebinding between check and use
 * has no effect.
 */
export function createGuardedFetch(settings: GuardedFetchOptions): GuardedFetch {
  const options = { ...settings, resolve: shareLookups(settings.resolve ?? lookupOf(settings)) }
  return async (request) => {
    const deadline = AbortSignal.timeout(options.timeoutMs)
    const signal = request.signal ? AbortSignal.any([deadline, request.signal]) : deadline
    let url = parseUrl(request.url)
    let headers = request.headers
    for (let hop = 0; ; hop += 1) {
      const reply = await sendOnce(options, { ...request, headers, signal }, url)
      const target = redirectOf(reply, request)
      if (target === undefined || (options.redirectsMax ?? 0) === 0) return presentReply(reply)
      if (hop >= (options.redirectsMax ?? 0)) {
        throw new OutgoingError('redirects', `${url.host} redirects too often`)
      }
      const next = parseUrl(target, url)
      // Headers and body for one host must not be sent to another.
      if (next.origin !== url.origin) headers = undefined
      url = next
    }
  }
}

function lookupOf({ allowsPrivateAddresses }: GuardedFetchOptions): ResolveHost {
  return allowsPrivateAddresses ? resolveBySystem : createHostResolver()
}

/**
 * Concurrent lookups of a name share one call. A call of the operating system occupies a thread of
 * Node's pool, so silent name servers could otherwise block all lookups.
 */
function shareLookups(resolve: ResolveHost): ResolveHost {
  const open = new Map<string, ReturnType<ResolveHost>>()
  return (hostname) => {
    const known = open.get(hostname)
    if (known !== undefined) return known
    const lookup = resolve(hostname).finally(() => open.delete(hostname))
    open.set(hostname, lookup)
    return lookup
  }
}

interface RawReply {
  readonly message: IncomingMessage
  readonly bytes: Buffer
}

function presentReply({ message, bytes }: RawReply): OutgoingReply {
  return {
    status: message.statusCode ?? 0,
    contentType: message.headers['content-type'] ?? '',
    retryAfter: message.headers['retry-after'] ?? '',
    bytes,
    get text() {
      return bytes.toString('utf8')
    },
  }
}

function redirectOf({ message }: RawReply, request: OutgoingRequest): string | undefined {
  const isRedirect = [301, 302, 303, 307, 308].includes(message.statusCode ?? 0)
  const isGet = (request.method ?? 'GET') === 'GET'
  return isRedirect && isGet ? message.headers.location : undefined
}

function parseUrl(text: string, base?: URL): URL {
  const url = URL.parse(text, base?.href)
  if (url === null || !['http:', 'https:'].includes(url.protocol)) {
    throw new OutgoingError('protocol', 'only http and https addresses can be called')
  }
  if (base?.protocol === 'https:' && url.protocol === 'http:') {
    throw new OutgoingError('protocol', `${base.host} redirects to an unencrypted address`)
  }
  return url
}

async function sendOnce(
  options: GuardedFetchOptions,
  request: OutgoingRequest & { readonly signal: AbortSignal },
  address: URL,
): Promise<RawReply> {
  const url = options.rewrite?.(address) ?? address
  const message = await openOutgoing(options, url, {
    method: request.method ?? 'GET',
    signal: request.signal,
    body: bodyOf(request),
    headers: { accept: 'application/json', ...request.headers },
  })
  try {
    return { message, bytes: await readBytes(message, options.bodyBytesMax ?? BODY_BYTES_MAX) }
  } catch (error) {
    throw toOutgoingError(error, url, request.signal)
  }
}

interface RequestBody {
  readonly type: string
  readonly text: string
}

function bodyOf({ form, json }: OutgoingRequest): RequestBody | undefined {
  if (json !== undefined) return { type: 'application/json', text: json }
  if (form === undefined) return undefined
  return { type: 'application/x-www-form-urlencoded', text: new URLSearchParams(form).toString() }
}

/** A call whose caller reads the answer and handles redirects. */
interface OpenRequest {
  readonly method?: 'GET' | 'POST'
  readonly headers: Readonly<Record<string, string>>
  readonly body?: RequestBody | undefined
  readonly signal: AbortSignal
}

/** Connects to a permitted IP address and returns the answer as soon as its headers arrive. */
export function openOutgoing(
  options: Pick<GuardedFetchOptions, 'allowsPrivateAddresses' | 'resolve' | 'agents'>,
  url: URL,
  call: OpenRequest,
): Promise<IncomingMessage> {
  const { method = 'GET', headers, body, signal } = call
  // Literal IP addresses skip the DNS lookup, so they are checked here.
  if (!options.allowsPrivateAddresses && isPrivateLiteral(url)) {
    return Promise.reject(refusedAddress(url.hostname))
  }
  return new Promise((resolve, reject) => {
    const isSecure = url.protocol === 'https:'
    const open = isSecure ? requestHttps : requestHttp
    const outgoing = open(url, {
      method,
      // One connection per call by default, so that none is reused for another caller.
      agent: options.agents?.[isSecure ? 'https' : 'http'] ?? false,
      signal,
      lookup: guardedLookup(options),
      headers: {
        'accept-encoding': 'identity',
        'user-agent': 'millrace',
        ...(body !== undefined && {
          'content-type': body.type,
          'content-length': String(Buffer.byteLength(body.text)),
        }),
        ...headers,
      },
    })
    let hasAnswered = false
    outgoing.on('error', (error) => {
      // The server closed a kept connection while the request was being sent: retry on a new one.
      if (outgoing.reusedSocket && !hasAnswered && !signal.aborted) {
        const { agents: _agents, ...withoutAgents } = options
        resolve(openOutgoing(withoutAgents, url, call))
      } else reject(toOutgoingError(error, url, signal))
    })
    outgoing.on('response', (message) => {
      hasAnswered = true
      resolve(message)
    })
    // Node drops a connection that switches protocols, without an error or an answer.
    outgoing.on('close', () => {
      if (!hasAnswered) reject(toOutgoingError(undefined, url, signal))
    })
    outgoing.end(body?.text)
  })
}

/** Whether all IP addresses of a host are on the public internet. */
export async function isPublicHost(
  url: URL,
  resolve: ResolveHost = resolveBySystem,
): Promise<boolean> {
  const literal = literalOf(url)
  if (isIP(literal) !== 0) return isPublicAddress(literal)
  const found = await resolve(url.hostname)
  return found.every(({ address }) => isPublicAddress(address))
}

/** Whether the host of a URL is an IP address outside the public internet. */
export function isPrivateLiteral(url: URL): boolean {
  const literal = literalOf(url)
  return isIP(literal) !== 0 && !isPublicAddress(literal)
}

const literalOf = ({ hostname }: URL): string => hostname.replace(/^\[|\]$/g, '')

async function readBytes(message: IncomingMessage, bytesMax: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of message as AsyncIterable<Buffer>) {
    bytes += chunk.length
    // Leaving the loop destroys the stream, and with it the connection.
    if (bytes > bytesMax) throw new OutgoingError('size', `the reply is over ${bytesMax} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

function guardedLookup(
  options: Pick<GuardedFetchOptions, 'allowsPrivateAddresses' | 'resolve'>,
): LookupFunction {
  const { allowsPrivateAddresses, resolve = resolveBySystem } = options
  return (hostname, lookupOptions, done) => {
    resolve(hostname).then(
      (found) => {
        const isAllowed = ({ address }: LookupAddress) =>
          allowsPrivateAddresses || isPublicAddress(address)
        const [first] = found
        if (first === undefined || !found.every(isAllowed)) {
          done(unresolved('address', hostname), '', 4)
        } else if (lookupOptions.all) done(null, [...found])
        else done(null, first.address, first.family)
      },
      (error: NodeJS.ErrnoException) =>
        done(allowsPrivateAddresses ? error : unresolved('network', hostname, error), '', 4),
    )
  }
}

function refusedAddress(hostname: string): OutgoingError {
  return new OutgoingError('address', `${hostname} is not on the public internet`)
}

// The same message for a name of the private network and for an unknown one: clients that choose
// names and read the message must not learn which private names exist.
function unresolved(
  reason: 'address' | 'network',
  hostname: string,
  cause?: unknown,
): OutgoingError {
  return new OutgoingError(reason, `${hostname} has no public address`, cause)
}

function toOutgoingError(error: unknown, url: URL, signal: AbortSignal): OutgoingError {
  if (error instanceof OutgoingError) return error
  if (signal.aborted) {
    return new OutgoingError('timeout', `${url.host} did not answer in time`, error)
  }
  return new OutgoingError('network', `${url.host} cannot be reached`, error)
}
