import { createServer, type Server } from 'node:http'

/** Answers `/healthz` (the process runs) and `/readyz` (every model is served). */
export async function openHealthServer(
  port: number,
  isReady: () => boolean,
): Promise<{ readonly port: number; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    const path = request.url?.split('?')[0]
    const isKnown = path === '/healthz' || path === '/readyz'
    const isWell = path === '/healthz' || (path === '/readyz' && isReady())
    response.writeHead(isKnown ? (isWell ? 200 : 503) : 404, { 'content-type': 'text/plain' })
    response.end(isKnown ? (isWell ? 'ok\n' : 'not ready\n') : 'not found\n')
  })
  server.requestTimeout = 5000
  await listen(server, port)
  const address = server.address()
  return {
    port: typeof address === 'object' && address !== null ? address.port : port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, () => resolve())
  })
}
