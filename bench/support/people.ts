import { Agent, type RequestOptions, request } from 'node:http'

/** The answer of an endpoint of the user server. */
export interface Answer {
  readonly status: number
  readonly body: Readonly<Record<string, unknown>>
}

/** A client that keeps its connections, as light as Node has one. */
export interface Client {
  get(path: string, headers?: Readonly<Record<string, string>>): Promise<Answer>
  post(path: string, body: object, headers?: Readonly<Record<string, string>>): Promise<Answer>
  close(): void
}

/** Opens a client with as many connections as it is asked for at once. */
export function openClient(url: string): Client {
  const agent = new Agent({ keepAlive: true })
  const send = (
    path: string,
    options: Pick<RequestOptions, 'method' | 'headers'>,
    text?: string,
  ): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const call = request(`${url}${path}`, { ...options, agent }, (response) => {
        let answer = ''
        response.setEncoding('utf8')
        response.on('data', (chunk: string) => (answer += chunk))
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, body: JSON.parse(answer || '{}') }),
        )
        response.on('error', reject)
      })
      call.on('error', reject)
      call.end(text)
    })
  return {
    close: () => agent.destroy(),
    get: (path, headers = {}) => send(path, { method: 'GET', headers: { ...headers } }),
    post(path, body, more = {}) {
      const text = JSON.stringify(body)
      const length = Buffer.byteLength(text)
      const headers = { ...more, 'content-type': 'application/json', 'content-length': length }
      return send(path, { method: 'POST', headers }, text)
    },
  }
}

/** Signs a new user up on a server that confirms at once; returns the refresh token. */
export async function signUp(client: Client, user: object): Promise<string> {
  const { status, body } = await client.post('/signup', user)
  if (status !== 200) throw new Error(`the sign-up failed: ${JSON.stringify(body)}`)
  return String(body.refresh_token)
}

/** Runs of `work` per second: `concurrency` at a time, `each` runs each. */
export async function ratePerSecond(
  concurrency: number,
  each: number,
  work: (index: number) => Promise<void>,
): Promise<number> {
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: concurrency }, async (_, index) => {
      for (let run = 0; run < each; run += 1) await work(index)
    }),
  )
  return (concurrency * each * 1000) / (performance.now() - startedAt)
}
