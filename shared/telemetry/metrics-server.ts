import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http'

import { Registry } from 'prom-client'

import { withinTime } from '#shared/clock.ts'
import { handleInOrder } from '#shared/net/pipelining.ts'

/** An answer of the metrics server. */
interface PlainAnswer {
  readonly status: number
  readonly contentType: string
  readonly body: string
}

/** Serves one path, or every path below it when the path of the row ends in a slash. */
export type PlainHandler = (rest: string) => PlainAnswer | Promise<PlainAnswer>

/** A listening metrics server. */
export interface MetricsServer {
  readonly port: number
  close(): Promise<void>
}

/** The address to listen on, and the handler of each path. */
interface MetricsServerOptions {
  /** All interfaces if absent. */
  readonly host?: string
  /** 0 chooses a free port. */
  readonly port: number
  readonly handlers: Readonly<Record<string, PlainHandler>>
  /** The time limits of a request and of its answer; the production values if absent. */
  readonly timeouts?: { readonly requestMs: number; readonly answerMs: number }
  /** Receives errors thrown by handlers; clients see a plain 500. */
  onError(error: unknown): void
}

const REQUEST_TIMEOUT_MS = 5000
const HANDLER_TIMEOUT_MS = 4000
/** A client that has not read its answer by then is disconnected. */
const ANSWER_TIMEOUT_MS = 10_000
const CHECK_INTERVAL_MS = 1000
const CONNECTIONS_MAX = 64

/**
 * An HTTP server for monitoring: metrics, health, backlogs. It has its own port, so that only the
 * collector can reach it and it answers while the API is busy or draining.
 */
export async function openMetricsServer(options: MetricsServerOptions): Promise<MetricsServer> {
  const { requestMs, answerMs } = options.timeouts ?? {
    requestMs: REQUEST_TIMEOUT_MS,
    answerMs: ANSWER_TIMEOUT_MS,
  }
  const checks = { connectionsCheckingInterval: Math.min(requestMs, CHECK_INTERVAL_MS) }
  const handle: RequestListener = (request, response) => {
    const late = setTimeout(() => response.destroy(), answerMs)
    response.once('close', () => clearTimeout(late))
    const path = request.url?.split('?')[0] ?? '/'
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      send(response, plain(405, 'method not allowed\n'))
      return
    }
    answer(options.handlers, path)
      .catch((error: unknown) => {
        options.onError(error)
        return plain(503, 'unavailable\n')
      })
      .then((found) => send(response, found))
      .catch(() => response.destroy())
  }
  const server = createServer(checks, handleInOrder(handle))
  server.requestTimeout = requestMs
  server.headersTimeout = requestMs
  server.on('clientError', (_error, socket) => socket.destroy())
  server.maxConnections = CONNECTIONS_MAX
  await listen(server, options)
  const address = server.address()
  return {
    port: typeof address === 'object' && address !== null ? address.port : options.port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

/** Serves a registry, followed by the lines of `more`. */
export function metricsHandler(
  registry: Registry,
  more: () => Promise<string> = async () => '',
): PlainHandler {
  return async () => ({
    status: 200,
    contentType: Registry.PROMETHEUS_CONTENT_TYPE,
    body: (await registry.metrics()) + (await more()),
  })
}

/** A plain-text answer. */
export function plain(status: number, body: string): PlainAnswer {
  return { status, contentType: 'text/plain; charset=utf-8', body }
}

/** An answer in JSON. */
export function json(status: number, body: unknown): PlainAnswer {
  return { status, contentType: 'application/json; charset=utf-8', body: JSON.stringify(body) }
}

async function answer(
  handlers: MetricsServerOptions['handlers'],
  path: string,
): Promise<PlainAnswer> {
  const found = findHandler(handlers, path)
  if (found === undefined) return plain(404, 'not found\n')
  const work = Promise.resolve(found.handler(found.rest))
  return withinTime(work, HANDLER_TIMEOUT_MS, () => new Error(`${path} took too long`))
}

function findHandler(
  handlers: MetricsServerOptions['handlers'],
  path: string,
): { handler: PlainHandler; rest: string } | undefined {
  for (const [prefix, handler] of Object.entries(handlers)) {
    if (prefix === path) return { handler, rest: '' }
    if (prefix.length > 1 && prefix.endsWith('/') && path.startsWith(prefix)) {
      return { handler, rest: path.slice(prefix.length) }
    }
  }
  return undefined
}

function send(response: ServerResponse, { status, contentType, body }: PlainAnswer): void {
  response.writeHead(status, {
    'content-type': contentType,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  })
  response.end(response.req.method === 'HEAD' ? undefined : body)
}

function listen(server: Server, { host, port }: MetricsServerOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    const onListening = (): void => {
      server.off('error', reject)
      resolve()
    }
    if (host === undefined) server.listen(port, onListening)
    else server.listen(port, host, onListening)
  })
}
