import { readFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { join } from 'node:path'

import { describe, expect } from 'vitest'

import { report, scale } from '#test/support/fault-report.ts'
import { it, timeUntil, toyBody } from '#test/support/fault-toy.ts'
import { sleep } from '#test/support/fault-world.ts'
import { API_KEY } from '#test/support/tiers.ts'

const CLIENTS = scale(50, 16)
const TIMEOUT_MS = 120_000

describe('R13: an API process is stopped', () => {
  it('and answers every request on the connections that it has accepted', {
    timeout: TIMEOUT_MS,
  }, async ({ open, folder }) => {
    const tiers = await open({ MILLRACE_DRAIN_TIMEOUT: '60' })
    await tiers.startToyWorker(128)
    const file = join(folder, 'taken-connections')
    const counter = new URL('../support/taken-connections.ts', import.meta.url)
    const doomed = await tiers.startApi({
      NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import ${counter.href}`,
      TAKEN_CONNECTIONS: file,
    })
    const asked: Asked[] = []
    const clients = Array.from({ length: CLIENTS }, async (_, i) => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      for (;;) {
        const one = await ask(doomed.url, agent)
        asked.push(one)
        // A client whose connection is refused has lost nothing and tries another process.
        if (one.answer === 'ECONNREFUSED') return
        await sleep(i % 30)
      }
    })
    await timeUntil(() => asked.filter(({ answer }) => answer === KEPT).length > CLIENTS)
    const from = performance.now()
    doomed.kill('SIGTERM')
    await Promise.all(clients)
    const { code, atMs } = await doomed.exited
    const counts = Object.groupBy(asked, ({ answer }) => answer)
    report('R13 (open connections)', {
      clients: CLIENTS,
      ...Object.fromEntries(Object.entries(counts).map(([key, of]) => [key, of?.length ?? 0])),
      'gone after ms': atMs - from,
    })
    expect(code).toBe(0)
    const taken = new Set(readFileSync(file, 'utf8').trim().split('\n').map(Number))
    const { ECONNREFUSED: refused, ECONNRESET: reset = [], ...answered } = counts
    expect(Object.keys(answered).toSorted()).toEqual([CLOSED, KEPT])
    expect(refused).toHaveLength(CLIENTS)
    expect(
      Object.values(answered)
        .flatMap((of = []) => of)
        .every(({ port }) => taken.has(port)),
    ).toBe(true)
    // Only a connection that the process has never seen may be reset, by the kernel, as its port
    // closes.
    expect(reset.filter(({ port }) => taken.has(port))).toEqual([])
  })
})

describe('an API process whose drain time is over', () => {
  it('answers the clients of unfinished jobs with a retry', { timeout: TIMEOUT_MS }, async ({
    open,
  }) => {
    const tiers = await open({ MILLRACE_DRAIN_TIMEOUT: '1' })
    await tiers.startToyWorker(16)
    const whole = tiers.post(toyBody('stepMs=20', 2000, false))
    let hasText = false
    const onChunk = (): void => {
      hasText = true
    }
    const stream = tiers.read('stepMs=20', 2000, { onChunk })
    await timeUntil(async () => hasText && (await tiers.numHeld()) === 2)
    tiers.api.kill('SIGTERM')
    const [refused, seen] = await Promise.all([whole, stream])
    expect(refused.status).toBe(503)
    expect(refused.headers.get('retry-after')).toBe('1')
    expect(await refused.json()).toMatchObject({ error: { code: 'service_unavailable' } })
    expect(seen).toMatchObject({ status: 200, numDone: 0, error: { code: 'service_unavailable' } })
    expect((await tiers.api.exited).code).toBe(0)
  })
})

const KEPT = '200 keep-alive'
const CLOSED = '200 close'

/** How a request was answered, and the client's port of its connection. */
interface Asked {
  /** Its status and what becomes of the connection, or the fault. */
  readonly answer: string
  readonly port: number
}

/** Asks for a short stream. */
function ask(url: string, agent: Agent): Promise<Asked> {
  return new Promise((resolve) => {
    let port = 0
    const end = (answer: string): void => resolve({ answer, port })
    const headers = { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' }
    const options = { method: 'POST', agent, headers }
    const asking = request(`${url}/v1/completions`, options, (answer) => {
      let text = ''
      answer
        .setEncoding('utf8')
        .on('data', (part: string) => (text += part))
        .on('error', (error) => end(`broken: ${error.message}`))
        .on('end', () => {
          const isWhole = text.endsWith('data: [DONE]\n\n')
          end(isWhole ? `${answer.statusCode} ${answer.headers.connection}` : text)
        })
    })
    asking.on('socket', (socket) => {
      const note = (): void => {
        port = socket.localPort ?? port
      }
      if (socket.connecting) socket.once('connect', note)
      else note()
    })
    asking.on('error', ({ code }: NodeJS.ErrnoException) => end(String(code)))
    asking.end(JSON.stringify(toyBody('stepMs=5', 10)))
  })
}
