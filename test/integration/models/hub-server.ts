import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A request that the server received, with its credentials and range. */
export interface SeenRequest {
  readonly host: 'hub' | 'cdn'
  readonly path: string
  readonly authorization: string | undefined
  readonly range: string | undefined
}

/** A model hub on the loopback interface, whose large files lie on a second server. */
export interface TestHub {
  readonly endpoint: string
  readonly seen: SeenRequest[]
  readonly files: Map<string, Buffer>
  /** Names of files whose connection breaks after this many bytes, once for each entry. */
  readonly breaks: Map<string, number[]>
  /** The content that is sent instead of the real one. */
  readonly forged: Map<string, Buffer>
  /** When set, requests to the hub need it. */
  accessToken: string | undefined
  /** Answers instead of the hub where it returns true. */
  instead: (request: IncomingMessage, response: ServerResponse) => boolean
  /** Further entries of the listing. */
  readonly listedBesides: object[]
  close(): Promise<void>
}

export const COMMIT = 'c0ffee'.padEnd(40, '0')
export const REPOSITORY = 'someone/some-model'
const LARGE_BYTES = 1000
const PAGE_FILES = 3

/** Starts the hub with the files of one repository. */
export async function startHub(files: Record<string, string | Buffer>): Promise<TestHub> {
  const contents = new Map(Object.entries(files).map(([path, body]) => [path, Buffer.from(body)]))
  const cdn = createServer((request, response) => {
    note('cdn', request)
    if (hub.instead(request, response)) return
    sendFile(decodeURIComponent((request.url ?? '').slice(1)), request, response)
  })
  const server = createServer((request, response) => {
    note('hub', request)
    if (hub.instead(request, response)) return
    answer(request, response)
  })
  for (const each of [cdn, server]) {
    each.listen(0, '127.0.0.1')
    await once(each, 'listening')
  }
  const cdnUrl = `http://127.0.0.1:${(cdn.address() as AddressInfo).port}`
  const hub: TestHub = {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen: [],
    files: contents,
    breaks: new Map(),
    forged: new Map(),
    accessToken: undefined,
    instead: () => false,
    listedBesides: [{ type: 'directory', path: 'onnx', oid: '0', size: 0 }],
    async close() {
      for (const each of [cdn, server]) {
        each.closeAllConnections()
        each.close()
        await once(each, 'close')
      }
    },
  }

  function note(host: 'hub' | 'cdn', { url, headers }: IncomingMessage): void {
    const { authorization, range } = headers
    hub.seen.push({ host, path: url ?? '', authorization, range })
  }

  function answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? '', hub.endpoint)
    const { authorization } = request.headers
    if (hub.accessToken !== undefined && authorization !== `Bearer ${hub.accessToken}`) {
      response.writeHead(401).end('{"error":"Invalid username or password."}')
      return
    }
    const resolved = `/${REPOSITORY}/resolve/${COMMIT}/`
    if (url.pathname === `/api/models/${REPOSITORY}/revision/main`) {
      response.end(JSON.stringify({ sha: COMMIT }))
    } else if (url.pathname === `/api/models/${REPOSITORY}/tree/${COMMIT}`) {
      sendTree(url, response)
    } else if (url.pathname.startsWith(resolved)) {
      const path = decodeURIComponent(url.pathname.slice(resolved.length))
      const isLarge = (contents.get(path)?.length ?? 0) >= LARGE_BYTES
      if (!isLarge) sendFile(path, request, response)
      else response.writeHead(302, { location: `${cdnUrl}/${encodeURIComponent(path)}` }).end()
    } else response.writeHead(404).end('{"error":"Repository not found"}')
  }

  function sendTree(url: URL, response: ServerResponse): void {
    const from = Number(url.searchParams.get('cursor') ?? 0)
    const entries = [...contents].slice(from, from + PAGE_FILES)
    if (from + PAGE_FILES < contents.size) {
      url.searchParams.set('cursor', String(from + PAGE_FILES))
      response.setHeader('link', `<${url.href}>; rel="next"`)
    }
    const tree = entries.map(([path, body]) => presentEntry(path, body))
    response.end(JSON.stringify([...hub.listedBesides, ...tree]))
  }

  function sendFile(path: string, request: IncomingMessage, response: ServerResponse): void {
    const body = hub.forged.get(path) ?? contents.get(path)
    if (body === undefined) return void response.writeHead(404).end()
    const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
    const length = body.length - start
    response.writeHead(start > 0 ? 206 : 200, {
      'content-length': length,
      ...(start > 0 && { 'content-range': `bytes ${start}-${body.length - 1}/${body.length}` }),
    })
    const breakAfter = hub.breaks.get(path)?.shift()
    if (breakAfter === undefined) return void response.end(body.subarray(start))
    // Bytes already sent should arrive before the connection breaks: a reset would discard them.
    response.write(body.subarray(start, start + breakAfter), () => {
      setTimeout(() => response.destroy(), 200)
    })
  }
  return hub
}

function presentEntry(path: string, body: Buffer): object {
  const git = createHash('sha1').update(`blob ${body.length}\0`).update(body).digest('hex')
  const entry = { type: 'file', path, size: body.length, oid: git }
  if (body.length < LARGE_BYTES) return entry
  const oid = createHash('sha256').update(body).digest('hex')
  return { ...entry, lfs: { oid, size: body.length, pointerSize: 134 } }
}
