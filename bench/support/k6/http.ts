import { metric } from './metrics.ts'

// Replaces the imports of a scenario file from `k6/http` where there is no k6. Only calls that
// return promises: no code in this process waits for a socket.

/** A file of a form. */
interface FormFile {
  readonly data: string | ArrayBuffer
  readonly filename: string
  readonly type: string
}

type Expects = (status: number) => boolean

interface Parameters {
  readonly headers?: Readonly<Record<string, string>>
  readonly responseCallback?: Expects
}

const MARK = Symbol('file')

function file(
  data: string | ArrayBuffer,
  filename: string,
  type = 'application/octet-stream',
): FormFile {
  return Object.assign({ data, filename, type }, { [MARK]: true })
}

function expectedStatuses(...statuses: readonly number[]): Expects {
  return (status) => statuses.includes(status)
}

async function asyncRequest(
  method: string,
  url: string,
  body: string | Readonly<Record<string, string | FormFile>> | null,
  { headers = {}, responseCallback = (status) => status < 400 }: Parameters = {},
) {
  const begunMs = performance.now()
  const content = body === null || typeof body === 'string' ? body : formOf(body)
  const found = await fetch(url, { method, headers, body: content })
    .then(async (answer) => ({ answer, text: await readTimed(answer, begunMs) }))
    .catch(() => undefined)
  const duration = performance.now() - begunMs
  const status = found?.answer.status ?? 0
  metric('http_reqs', 'counter').add(1)
  metric('http_req_duration', 'trend').add(duration)
  metric('http_req_failed', 'rate').add(!responseCallback(status))
  const text = found?.text ?? ''
  return {
    status,
    body: text,
    timings: { duration },
    headers: Object.fromEntries(
      [...(found?.answer.headers ?? [])].map(([name, value]) => [canonical(name), value]),
    ),
    json: (path: string) => pick(JSON.parse(text), path),
  }
}

/** Reads an answer; of a stream of events, also how long its first token took and the next ones. */
async function readTimed(answer: Response, begunMs: number): Promise<string> {
  if (answer.headers.get('content-type')?.startsWith('text/event-stream') !== true) {
    return answer.text()
  }
  const decoder = new TextDecoder()
  let text = ''
  let lastMs: number | undefined
  for await (const chunk of answer.body ?? []) {
    const piece = decoder.decode(chunk as Uint8Array, { stream: true })
    text += piece
    if (!/"content":"[^"]/.test(piece)) continue
    const nowMs = performance.now()
    if (lastMs === undefined) metric('time_to_first_token_ms', 'trend').add(nowMs - begunMs)
    else metric('inter_token_ms', 'trend').add(nowMs - lastMs)
    lastMs = nowMs
  }
  return text
}

function formOf(fields: Readonly<Record<string, string | FormFile>>): FormData {
  const form = new FormData()
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string') form.append(name, value)
    else form.append(name, new Blob([value.data], { type: value.type }), value.filename)
  }
  return form
}

/** As k6 spells the names of headers: `Retry-After`. */
function canonical(name: string): string {
  return name.replace(/(^|-)[a-z]/g, (start) => start.toUpperCase())
}

/** The value at a path such as `data.0.url`. */
function pick(value: unknown, path: string): unknown {
  return path
    .split('.')
    .reduce<unknown>((found, key) => (found as Record<string, unknown> | undefined)?.[key], value)
}

const http = { asyncRequest, expectedStatuses, file }

// biome-ignore lint/style/noDefaultExport: the name under which scenario files import it.
export default http
