import { once } from 'node:events'
import { request as openRequest } from 'node:http'
import { json } from 'node:stream/consumers'

/** Posts the headers and the first byte of a JSON body; the result sends the rest. */
export function openSlowRequest(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: object,
): () => Promise<{ status: number; body: unknown }> {
  const bytes = Buffer.from(JSON.stringify(body))
  const outgoing = openRequest(url, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json', 'content-length': bytes.length },
  })
  outgoing.write(bytes.subarray(0, 1))
  return async () => {
    const answered = once(outgoing, 'response')
    outgoing.end(bytes.subarray(1))
    const [answer] = await answered
    return { status: answer.statusCode, body: await json(answer).catch(() => undefined) }
  }
}
