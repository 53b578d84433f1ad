import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { join } from 'node:path'

import { spawnReady, type ToyProcess } from '#test/support/queue.ts'
import { TEXT_MODELS } from '#test/support/small-models.ts'

import type { Figure } from './figure.ts'
import { type BenchService, openService } from './support/service.ts'

const ANSWERED_MS = 250
const LOOP_HELD_MS = 50
// The first of each warms what every request needs.
const TIMES = 4
const BOUNDARY = 'b0undary'

interface Attack {
  readonly name: string
  readonly path: string
  readonly body: Buffer
  readonly headers: Readonly<Record<string, string>>
}

interface Outcome {
  readonly name: string
  readonly answeredMs: number
  readonly loopHeldMs: number
}

/**
 * How long requests that are made to do harm wait for their refusal, and how long the event loop of
 * the API is held meanwhile, as a client beside them notices it.
 */
export async function benchHostile(): Promise<readonly Figure[]> {
  const service = await openService(TEXT_MODELS)
  const script = join(import.meta.dirname, 'support/probe.ts')
  const probe = await spawnReady(script, [`${service.api.url}/healthz`])
  try {
    const outcomes: Outcome[] = []
    for (const attack of attacks()) outcomes.push(await suffer(service, probe, attack))
    return outcomes.flatMap(({ name, answeredMs, loopHeldMs }) => [
      {
        name: `${name}: time to its refusal ÷ ${ANSWERED_MS} ms`,
        unit: 'ms',
        ours: answeredMs,
        theirs: ANSWERED_MS,
        target: { atMost: 1 },
      },
      {
        name: `${name}: longest wait of somebody else ÷ ${LOOP_HELD_MS} ms`,
        unit: 'ms',
        ours: loopHeldMs,
        theirs: LOOP_HELD_MS,
        target: { atMost: 1 },
      },
    ])
  } finally {
    probe.kill('SIGKILL')
    await service.close()
  }
}

async function suffer(service: BenchService, probe: ToyProcess, attack: Attack): Promise<Outcome> {
  const outcome = { name: attack.name, answeredMs: 0, loopHeldMs: 0 }
  for (let time = 0; time < TIMES; time += 1) {
    await longestWait(probe)
    const startedAt = performance.now()
    const status = await send(service, attack)
    const answeredMs = performance.now() - startedAt
    const loopHeldMs = await longestWait(probe)
    if (status < 400 || status > 499) throw new Error(`${attack.name} was answered ${status}`)
    if (time === 0) continue
    outcome.answeredMs = Math.max(outcome.answeredMs, answeredMs)
    outcome.loopHeldMs = Math.max(outcome.loopHeldMs, loopHeldMs)
  }
  return outcome
}

async function longestWait({ child }: ToyProcess): Promise<number> {
  const { stdout } = child
  if (stdout === null) throw new Error('the probe has no output')
  const printed = once(stdout, 'data')
  child.kill('SIGUSR2')
  return Number(/longest (\S+)/.exec(String(await printed))?.[1])
}

function send({ url, headers }: BenchService, attack: Attack): Promise<number> {
  return new Promise((resolve, reject) => {
    const options = {
      method: 'POST',
      agent: new Agent(),
      headers: { ...headers, ...attack.headers, 'content-length': attack.body.length },
    }
    const call = request(`${url}${attack.path}`, options, (answer) => {
      answer.resume().once('end', () => resolve(answer.statusCode ?? 0))
    })
    // A client that is refused before all was sent may fail to send the rest; the answer counts.
    call.on('error', (cause) => reject(new Error(`${attack.name} got no answer`, { cause })))
    call.end(attack.body)
  })
}

function attacks(): readonly Attack[] {
  const json = (name: string, path: string, text: string): Attack => {
    const headers = { 'content-type': 'application/json' }
    return { name, path, body: Buffer.from(text), headers }
  }
  const form = (name: string, path: string, parts: string): Attack => {
    const headers = { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` }
    return { name, path, body: Buffer.from(`${parts}--${BOUNDARY}--\r\n`), headers }
  }
  const part = (name: string, value: string, more = '') =>
    `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`
  const nested = `${'{"a":'.repeat(1e6)}1${'}'.repeat(1e6)}`
  const keys = Array.from({ length: 5e5 }, (_, at) => `"k${at}":1`).join()
  const word = 'a'.repeat(4e6)
  const quotes = '"'.repeat(4e6)
  const fields = Array.from({ length: 1e5 }, (_, at) => part(`f${at}`, 'x')).join('')
  const chat = { model: 'chat', prompt: word }
  return [
    json('JSON a million deep', '/embeddings', `{"model":"embed","input":${nested}}`),
    json('JSON of 500,000 keys', '/embeddings', `{${keys}}`),
    json('a prompt of one word of 10 MB', '/completions', `{"prompt":"${'a'.repeat(1e7)}"}`),
    json('a prompt of one word of 4 MB', '/completions', JSON.stringify(chat)),
    json(
      'a prompt of 4 million quotes',
      '/completions',
      JSON.stringify({ ...chat, prompt: quotes }),
    ),
    json('a text of 4 MB to embed', '/embeddings', JSON.stringify({ model: 'embed', input: word })),
    form('a form of 100,000 fields', '/audio/transcriptions', fields),
    form('a form of 100,000 files', '/files', part('file', 'x', '; filename="a"').repeat(1e5)),
    form('a field of 5 MB', '/files', part('purpose', 'a'.repeat(5e6))),
    {
      ...json('headers of 100 KB', '/models', ''),
      headers: { 'x-large': 'a'.repeat(1e5) },
    },
  ]
}
