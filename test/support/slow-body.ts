import { once } from 'node:events'
import { request as openRequest } from 'node:http'
import { json } from 'node:stream/consumers'

/** Posts the headers and the first byte of a body, JSON or bytes; the result sends the rest. */
export function openSlowRequest(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: object | Buffer,
): () => Promise<{ status: number; body: unknown }> {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body))
  const outgoing = openRequest(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers, 'content-length': bytes.length },
  })
  outgoing.write(bytes.subarray(0, 1))
  return async () => {
    const answered = once(outgoing, 'response')
    outgoing.end(bytes.subarray(1))
    const [answer] = await answered
    return { status: answer.statusCode, body: await json(answer).catch(() => undefined) }
  }
}
