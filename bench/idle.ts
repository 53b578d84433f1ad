import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'

import { type TierProcess, toyCatalogue } from '#test/support/fault-tiers.ts'
import { API_KEY } from '#test/support/tiers.ts'

import type { Figure } from './figure.ts'
import { openBenchTiers } from './support/service.ts'

const CONNECTIONS = 2000
const WARM_UP = 200
const AT_ONCE = 50
const BUDGET_KIB = 20

interface Memory {
  readonly heapUsed: number
  readonly external: number
  readonly rss: number
}

/** Measures the memory of an API process for each open stream that waits for its next token. */
export async function benchIdle(): Promise<readonly Figure[]> {
  const { tiers, close } = await openBenchTiers(toyCatalogue)
  const open: ClientRequest[] = []
  try {
    const preload = pathToFileURL(join(import.meta.dirname, 'support/collect-on-signal.mjs'))
    // Beside what the service is started with: how V8 keeps young objects is part of what is
    // measured.
    const options = `${process.env.NODE_OPTIONS ?? ''} --import=${preload.href}`
    const api = await tiers.startApi({ NODE_OPTIONS: options })
    await tiers.startToyWorker(CONNECTIONS + WARM_UP)
    await openStreams(api, open, WARM_UP)
    const before = await memoryOf(api)
    await openStreams(api, open, CONNECTIONS)
    const after = await memoryOf(api)
    const perStream = (count: (memory: Memory) => number): number =>
      (count(after) - count(before)) / CONNECTIONS / 1024
    const name = `of the API process per idle stream, ${CONNECTIONS} of them ÷ ${BUDGET_KIB} KiB`
    const budget = { unit: 'KiB', theirs: BUDGET_KIB, target: { atMost: 1 } }
    return [
      {
        name: `heap and buffers ${name}`,
        ...budget,
        ours: perStream(({ heapUsed, external }) => heapUsed + external),
      },
      { name: `resident memory ${name}`, ...budget, ours: perStream(({ rss }) => rss) },
    ]
  } finally {
    for (const call of open) call.destroy()
    await close()
  }
}

async function openStreams(api: TierProcess, open: ClientRequest[], count: number): Promise<void> {
  const body = JSON.stringify({
    model: 'toy',
    prompt: 'hang',
    max_tokens: 1,
    temperature: 0,
    stream: true,
  })
  const headers = { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' }
  const openOne = async (): Promise<void> => {
    const call = request(`${api.url}/v1/completions`, { method: 'POST', headers, agent: false })
    open.push(call)
    call.end(body)
    const [response] = (await once(call, 'response')) as [IncomingMessage]
    if (response.statusCode !== 200) throw new Error(`answered ${response.statusCode}`)
    // Reset when the bench is over.
    call.on('error', () => {})
    response.on('error', () => {})
  }
  for (let at = 0; at < count; at += AT_ONCE) {
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - at) }, openOne))
  }
}

/** The memory after collecting twice, with a pause in which timers and sockets settle. */
async function memoryOf(api: TierProcess): Promise<Memory> {
  for (let time = 0; time < 2; time += 1) {
    await sleep(2000)
    const known = (await linesOf(api)).length
    api.kill('SIGUSR2')
    for (let wait = 0; (await linesOf(api)).length === known; wait += 1) {
      if (wait > 200) throw new Error('the process did not say what it holds')
      await sleep(50)
    }
  }
  const last = (await linesOf(api)).at(-1) ?? ''
  return JSON.parse(last.slice('memory '.length)) as Memory
}

async function linesOf({ logFile }: TierProcess): Promise<string[]> {
  const text = await readFile(logFile, 'utf8')
  return text.split('\n').filter((line) => line.startsWith('memory '))
}
