import { Agent, get } from 'node:http'
import { join } from 'node:path'

import { spawnReady } from '#test/support/queue.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { ratePerSecond } from './support/people.ts'
import { type BenchService, openService } from './support/service.ts'

const HALF_OPEN = 2000
const CONCURRENCY = 8
const REQUESTS_EACH = 400

/**
 * Measures the rate that good clients keep beside thousands of connections that never end a
 * request.
 */
export async function benchSlowClients(): Promise<readonly Figure[]> {
  const service = await openService([])
  const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENCY })
  const rate = () => ratePerSecond(CONCURRENCY, REQUESTS_EACH, () => listModels(service, agent))
  const beside = async (): Promise<number> => {
    const script = join(import.meta.dirname, 'support/half-open.ts')
    const crowd = await spawnReady(script, [service.api.url, String(HALF_OPEN)])
    try {
      return await rate()
    } finally {
      crowd.kill('SIGKILL')
      await crowd.exited
    }
  }
  try {
    const found = await alternate(beside, rate)
    const name = `requests beside ${HALF_OPEN} half-open connections ÷ without them`
    return [{ name, unit: '/s', ...found, target: { atLeast: 0.95 } }]
  } finally {
    agent.destroy()
    await service.close()
  }
}

function listModels({ url, headers }: BenchService, agent: Agent): Promise<void> {
  return new Promise((resolve, reject) => {
    get(`${url}/models`, { agent, headers }, (answer) => {
      if (answer.statusCode !== 200) reject(new Error(`the answer was ${answer.statusCode}`))
      answer.resume().once('end', resolve).once('error', reject)
    }).once('error', reject)
  })
}
