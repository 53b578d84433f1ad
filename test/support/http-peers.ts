import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'

/** A request that a stand-in received. */
export interface PeerRequest {
  readonly method: string
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  readonly headers: IncomingHttpHeaders
  readonly form: Readonly<Record<string, string>>
  /** The body as it arrived. */
  readonly text: string
}

/** The answer of a stand-in; `hang` never answers, `write` does so itself. */
export type PeerReply =
  | { readonly status?: number; readonly headers?: Record<string, string>; readonly body: unknown }
  | { readonly write: (outgoing: ServerResponse) => void }
  | 'hang'

/** A local HTTP server in place of an external one. */
export interface HttpPeer {
  readonly url: string
  readonly requests: readonly PeerRequest[]
  stop(): Promise<void>
}

/** Starts a stand-in on a free port of the loopback interface. */
export async function startHttpPeer(
  answer: (request: PeerRequest) => PeerReply,
): Promise<HttpPeer> {
  const requests: PeerRequest[] = []
  const server = createServer((incoming, outgoing) => {
    const chunks: Buffer[] = []
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
    incoming.on('end', () => {
      const url = new URL(incoming.url ?? '/', 'http://peer')
      const text = Buffer.concat(chunks).toString()
      const request: PeerRequest = {
        method: incoming.method ?? '',
        path: url.pathname,
        query: Object.fromEntries(url.searchParams),
        headers: incoming.headers,
        form: Object.fromEntries(new URLSearchParams(text)),
        text,
      }
      requests.push(request)
      const reply = answer(request)
      if (reply === 'hang') return
      if ('write' in reply) {
        reply.write(outgoing)
        return
      }
      const isText = typeof reply.body === 'string'
      outgoing.writeHead(reply.status ?? 200, {
        'content-type': isText ? 'text/html' : 'application/json',
        ...reply.headers,
      })
      outgoing.end(isText ? reply.body : JSON.stringify(reply.body))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
