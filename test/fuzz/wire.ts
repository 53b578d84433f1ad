import { connect } from 'node:net'

import type { FuzzRequest } from './requests.ts'

/** An answer as it came over the wire. */
export interface WireAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** Whether all of it came. */
  readonly isWhole: boolean
}

const ANSWER_BYTES_MAX = 64 * 2 ** 20
// Longer than any answer takes, even of a machine that is busy with other things.
const TIMEOUT_MS = 60_000

const SHORT_BODY_MS = 1000
const FRAMING = ['content-length', 'transfer-encoding', 'expect']

/** A request was never answered. */
export class NoAnswerError extends Error {}

/**
 * Sends a request byte for byte, as no library would, on a connection of its own. Throws
 * `NoAnswerError` when none comes.
 */
export function send(url: string, request: FuzzRequest, bearer: string): Promise<WireAnswer> {
  const { hostname, port, host } = new URL(url)
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = connect({ port: Number(port), host: hostname })
    const timers = [setTimeout(() => end(`no end within ${TIMEOUT_MS} ms`), TIMEOUT_MS)]
    const end = (complaint: string): void => {
      for (const timer of timers) clearTimeout(timer)
      socket.destroy()
      const answer = parseAnswer(text, request.method)
      if (answer === undefined) reject(new NoAnswerError(`${complaint}, without an answer`))
      else resolve(answer)
    }
    socket.setEncoding('latin1')
    socket.on('data', (chunk) => {
      text += chunk
      if (text.length > ANSWER_BYTES_MAX) end('the answer is endless')
      else if (parseAnswer(text, request.method)?.isWhole === true) end('whole')
    })
    socket.once('end', () => end('the connection ended'))
    // A refusal may come, and the connection end, before the whole request was written.
    socket.once('error', () => end('the connection broke'))
    socket.write(compose(request, host, bearer), 'latin1')
    // Where less comes than was announced, the server would wait as long as for a slow client.
    if (isFramed(request)) timers.push(setTimeout(() => socket.end(), SHORT_BODY_MS))
  })
}

/** Whether the request itself says where its body ends, and perhaps not where it does. */
export const isFramed = ({ headers }: FuzzRequest): boolean =>
  headers.some(([name]) => FRAMING.includes(name.toLowerCase()))

function compose(request: FuzzRequest, host: string, bearer: string): string {
  const given = new Set(request.headers.map(([name]) => name.toLowerCase()))
  const { body } = request
  const defaults: [string, string][] = []
  if (!given.has('host')) defaults.push(['host', host])
  if (!given.has('connection')) defaults.push(['connection', 'close'])
  if (bearer !== '' && !given.has('authorization')) {
    defaults.push(['authorization', `Bearer ${bearer}`])
  }
  if (body !== undefined && !isFramed(request)) {
    defaults.push(['content-length', String(body.length)])
  }
  const lines = [...defaults, ...request.headers].map(([name, value]) => `${name}: ${value}`)
  return `${request.method} ${request.target} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body ?? ''}`
}

/** The last head and the body after it; undefined when nothing came that is one. */
export function parseAnswer(text: string, method: string): WireAnswer | undefined {
  const end = text.indexOf('\r\n\r\n')
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1])
  if (end < 0 || Number.isNaN(status)) return undefined
  const rest = text.slice(end + 4)
  if (status < 200 && status !== 101) return parseAnswer(rest, method)
  const lines = text.slice(0, end).split('\r\n').slice(1)
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':')
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()]
    }),
  )
  const isBare = method === 'HEAD' || status === 204 || status === 304
  if (isBare) return { status, headers, body: '', isWhole: rest === '' }
  if (headers['transfer-encoding'] === 'chunked') return { status, headers, ...unchunk(rest) }
  // Without a length the answer ends with its connection.
  const length = Number(headers['content-length'] ?? Number.NaN)
  if (Number.isNaN(length)) return { status, headers, body: rest, isWhole: false }
  return { status, headers, body: rest.slice(0, length), isWhole: rest.length >= length }
}

function unchunk(text: string): { body: string; isWhole: boolean } {
  const parts: string[] = []
  for (let at = 0; ; ) {
    const lineEnd = text.indexOf('\r\n', at)
    const size = Number.parseInt(text.slice(at, lineEnd), 16)
    if (lineEnd < 0 || Number.isNaN(size)) return { body: parts.join(''), isWhole: false }
    if (size === 0) return { body: parts.join(''), isWhole: true }
    parts.push(text.slice(lineEnd + 2, lineEnd + 2 + size))
    at = lineEnd + 2 + size + 2
  }
}
