import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gunzipSync } from 'node:zlib'

type Attributes = Readonly<Record<string, unknown>>

/** A span as a collector receives it. */
export interface ReceivedSpan {
  readonly name: string
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string
  /** 1 internal, 2 server, 3 client, 4 producer, 5 consumer. */
  readonly kind: number
  readonly attributes: Attributes
  readonly resource: Attributes
  readonly events: readonly string[]
  /** 2 is an error. */
  readonly status: number
}

/** A metric as a collector receives it, one per point. */
export interface ReceivedPoint {
  readonly name: string
  readonly type: 'sum' | 'gauge' | 'histogram'
  readonly attributes: Attributes
  readonly resource: Attributes
  /** The value, or how many a histogram counts. */
  readonly value: number
}

/** A collector that keeps what it is sent. */
export interface OtlpReceiver {
  readonly url: string
  readonly spans: ReceivedSpan[]
  /** The points of the newest export. */
  points: ReceivedPoint[]
  /** Everything that arrived, as it arrived. */
  readonly bodies: { readonly path: string; readonly contentType: string; readonly body: Buffer }[]
  readonly headers: IncomingMessage['headers'][]
  stop(): Promise<void>
}

/** Starts a collector of OTLP over HTTP: JSON is read, protobuf is kept as bytes. */
export async function startOtlpReceiver(): Promise<OtlpReceiver> {
  const receiver: Omit<OtlpReceiver, 'url' | 'stop'> = {
    spans: [],
    points: [],
    bodies: [],
    headers: [],
  }
  const server: Server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const bytes = Buffer.concat(chunks)
      const body = request.headers['content-encoding'] === 'gzip' ? gunzipSync(bytes) : bytes
      const contentType = request.headers['content-type'] ?? ''
      const path = request.url ?? ''
      receiver.bodies.push({ path, contentType, body })
      receiver.headers.push(request.headers)
      if (contentType.startsWith('application/json')) take(receiver, JSON.parse(String(body)))
      response
        .writeHead(200, { 'content-type': contentType })
        .end(contentType.startsWith('application/json') ? '{}' : '')
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return Object.assign(receiver, {
    url: `http://127.0.0.1:${port}`,
    stop: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  })
}

/** Spans whose parent is neither among the spans nor one of those that are known. */
export function orphansAmong(
  spans: readonly ReceivedSpan[],
  knownParents: readonly string[] = [],
): ReceivedSpan[] {
  const known = new Set([...knownParents, ...spans.map(({ spanId }) => spanId)])
  return spans.filter(({ parentSpanId }) => parentSpanId !== '' && !known.has(parentSpanId))
}

interface WireAttribute {
  readonly key: string
  readonly value: Readonly<Record<string, unknown>>
}

interface WireSpan {
  readonly name: string
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly kind: number
  readonly attributes?: readonly WireAttribute[]
  readonly events?: readonly { readonly name: string }[]
  readonly status?: { readonly code?: number }
}

interface WirePoint {
  readonly attributes?: readonly WireAttribute[]
  readonly asDouble?: number
  readonly asInt?: number
  readonly count?: number
}

interface Wire {
  readonly resourceSpans?: readonly {
    readonly resource: { readonly attributes: readonly WireAttribute[] }
    readonly scopeSpans: readonly { readonly spans: readonly WireSpan[] }[]
  }[]
  readonly resourceMetrics?: readonly {
    readonly resource: { readonly attributes: readonly WireAttribute[] }
    readonly scopeMetrics: readonly {
      readonly metrics: readonly (Readonly<
        Partial<Record<ReceivedPoint['type'], { readonly dataPoints: readonly WirePoint[] }>>
      > & { readonly name: string })[]
    }[]
  }[]
}

function take(receiver: Omit<OtlpReceiver, 'url' | 'stop'>, wire: Wire): void {
  for (const { resource, scopeSpans } of wire.resourceSpans ?? []) {
    const about = read(resource.attributes)
    for (const span of scopeSpans.flatMap(({ spans }) => spans)) {
      receiver.spans.push({
        name: span.name,
        traceId: span.traceId,
        spanId: span.spanId,
        kind: span.kind,
        parentSpanId: span.parentSpanId ?? '',
        attributes: read(span.attributes ?? []),
        resource: about,
        events: (span.events ?? []).map(({ name }) => name),
        status: span.status?.code ?? 0,
      })
    }
  }
  for (const { resource, scopeMetrics } of wire.resourceMetrics ?? []) {
    const about = read(resource.attributes)
    receiver.points = scopeMetrics
      .flatMap(({ metrics }) => metrics)
      .flatMap((metric) =>
        (['sum', 'gauge', 'histogram'] as const).flatMap((type) =>
          (metric[type]?.dataPoints ?? []).map((point) => ({
            name: metric.name,
            type,
            attributes: read(point.attributes ?? []),
            resource: about,
            value: Number(point.asDouble ?? point.asInt ?? point.count ?? Number.NaN),
          })),
        ),
      )
  }
}

function read(attributes: readonly WireAttribute[]): Attributes {
  return Object.fromEntries(
    attributes.map(({ key, value }) => [key, Object.values(value)[0]] as const),
  )
}
