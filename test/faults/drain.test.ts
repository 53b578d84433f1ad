import { Agent, request } from 'node:http'

import { describe, expect } from 'vitest'

import { report, scale } from '#test/support/fault-report.ts'
import { it, timeUntil, toyBody } from '#test/support/fault-toy.ts'
import { sleep } from '#test/support/fault-world.ts'
import { API_KEY } from '#test/support/tiers.ts'

const CLIENTS = scale(50, 16)
const TIMEOUT_MS = 120_000

describe('R13: an API process is stopped', () => {
  it('and answers all that comes on connections that are open', { timeout: TIMEOUT_MS }, async ({
    open,
  }) => {
    const tiers = await open({ MILLRACE_DRAIN_TIMEOUT: '60' })
    await tiers.startToyWorker(128)
    const doomed = await tiers.startApi()
    const answers = new Map<string, number>()
    const clients = Array.from({ length: CLIENTS }, async (_, i) => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      for (;;) {
        const answer = await ask(doomed.url, agent)
        answers.set(answer, (answers.get(answer) ?? 0) + 1)
        // Who is told that nobody listens has lost nothing and goes elsewhere.
        if (answer === 'ECONNREFUSED') return
        await sleep(i % 30)
      }
    })
    await timeUntil(() => (answers.get('200 keep-alive') ?? 0) > CLIENTS)
    const from = performance.now()
    doomed.kill('SIGTERM')
    await Promise.all(clients)
    const { code, atMs } = await doomed.exited
    report('R13 (open connections)', {
      clients: CLIENTS,
      ...Object.fromEntries(answers),
      'gone after ms': atMs - from,
    })
    expect(code).toBe(0)
    // A new connection that the process has not taken yet when its port closes is reset by the kernel.
    answers.delete('ECONNRESET')
    expect([...answers.keys()].toSorted()).toEqual(['200 close', '200 keep-alive', 'ECONNREFUSED'])
    expect(answers.get('ECONNREFUSED')).toBe(CLIENTS)
  })
})

/** How a short stream was answered: its status and what becomes of the connection, or the fault. */
function ask(url: string, agent: Agent): Promise<string> {
  return new Promise((resolve) => {
    const headers = { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' }
    const options = { method: 'POST', agent, headers }
    const asking = request(`${url}/v1/completions`, options, (answer) => {
      let text = ''
      answer
        .setEncoding('utf8')
        .on('data', (part: string) => (text += part))
        .on('error', (error) => resolve(`broken: ${error.message}`))
        .on('end', () => {
          const isWhole = text.endsWith('data: [DONE]\n\n')
          resolve(isWhole ? `${answer.statusCode} ${answer.headers.connection}` : text)
        })
    })
    asking.on('error', ({ code }: NodeJS.ErrnoException) =>
      resolve(asking.reusedSocket ? `${code} on a kept connection` : String(code)),
    )
    asking.end(JSON.stringify(toyBody('stepMs=5', 10)))
  })
}
