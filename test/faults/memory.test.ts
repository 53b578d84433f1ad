import { expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { post } from '#test/support/fault-client.ts'
import { openFaultPlace } from '#test/support/fault-place.ts'
import { report, scale } from '#test/support/fault-report.ts'
import { openFaultTiers } from '#test/support/fault-tiers.ts'
import { residentMib } from '#test/support/process-use.ts'
import { watchProcess } from '#test/support/watched-process.ts'

const ROUNDS = 6
const REQUESTS_PER_ROUND = scale(500, 45)
const IN_FLIGHT = 16
/** One in so many is left in the middle. */
const LEFT_EVERY = 10
/**
 * The most objects that the last four rounds may add to a process: words that tokenizers remember.
 */
const HEAP_MIB_MAX = 8
/** The most memory that they may add in total; 3 to 11 MiB are usual. */
const RESIDENT_MIB_MAX = 64

interface Held {
  readonly heap: number
  readonly resident: number
}

it('R25: requests that all differ leave no memory behind', { timeout: 600_000 }, async () => {
  const [api, worker] = [await watchProcess(), await watchProcess()]
  const scene = await openScene()
  try {
    const apiProcess = await scene.tiers.startApi(api.env)
    const workerProcess = await scene.tiers.startWorker({
      ...worker.env,
      MILLRACE_WORKER_MODELS: 'tiny-chat,tiny-embed,tiny-rerank',
    })
    const seen: { api: Held; worker: Held }[] = []
    const statuses = new Map<number, number>()
    for (let round = 0; round < ROUNDS; round += 1) {
      await runRound(apiProcess.url, round, statuses)
      seen.push({
        api: { heap: await api.collectedMib(), resident: residentMib(apiProcess.pid) },
        worker: { heap: await worker.collectedMib(), resident: residentMib(workerProcess.pid) },
      })
    }
    const all = (read: (held: (typeof seen)[number]) => number) => seen.map(read)
    report('R25', {
      requests: ROUNDS * REQUESTS_PER_ROUND,
      answers: JSON.stringify(Object.fromEntries(statuses)),
      'API heap MiB': shown(all((one) => one.api.heap)),
      'API resident MiB': shown(all((one) => one.api.resident)),
      'worker heap MiB': shown(all((one) => one.worker.heap)),
      'worker resident MiB': shown(all((one) => one.worker.resident)),
    })
    expect([...statuses.keys()].toSorted()).toEqual([200, 400, 404])
    for (const tier of ['api', 'worker'] as const) {
      const grown = (name: keyof Held) =>
        defined(seen.at(-1))[tier][name] - defined(seen[1])[tier][name]
      expect(grown('heap'), `heap of the ${tier}`).toBeLessThan(HEAP_MIB_MAX)
      expect(grown('resident'), `memory of the ${tier}`).toBeLessThan(RESIDENT_MIB_MAX)
    }
  } finally {
    await scene.close()
  }
})

async function openScene() {
  const place = await openFaultPlace('memory')
  // As `npm start` and the images set it.
  const tiers = openFaultTiers({ ...place.settings, env: { MALLOC_ARENA_MAX: '2' } })
  return { tiers, close: () => place.close(tiers) }
}

async function runRound(url: string, round: number, statuses: Map<number, number>): Promise<void> {
  let begun = 0
  const flow = async (): Promise<void> => {
    while (begun < REQUESTS_PER_ROUND) {
      begun += 1
      const index = round * REQUESTS_PER_ROUND + begun
      if (index % LEFT_EVERY === 0) await leave(url, index)
      else await ask(url, index, statuses)
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, flow))
}

async function ask(url: string, index: number, statuses: Map<number, number>): Promise<void> {
  const [path, body] = defined(REQUESTS[index % REQUESTS.length])(index)
  const answer = await post(url, path, body)
  await answer.arrayBuffer()
  statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
}

/** Goes away, every other time before the answer has begun. */
async function leave(url: string, index: number): Promise<void> {
  const abort = new AbortController()
  const body = { ...chat(index), max_tokens: 300, stream: true, ignore_eos: true }
  const asking = post(url, '/v1/chat/completions', body, { signal: abort.signal })
  if (index % (2 * LEFT_EVERY) === 0) await asking.then((answer) => answer.body?.getReader().read())
  else await new Promise((resolve) => setTimeout(resolve, index % 50))
  abort.abort()
  await asking.catch(() => {})
}

/** Words without an earlier use. */
const words = (index: number, count: number): string =>
  Array.from({ length: count }, (_, at) => (index * 7919 + at * 104_729).toString(36)).join(' ')

const chat = (index: number) => ({
  model: 'tiny-chat',
  messages: [{ role: 'user', content: words(index, 1 + (index % 40)) }],
  max_tokens: 1 + (index % 24),
  user: `user ${index}`,
})

/** A schema of its own for each request. */
const form = (index: number) => ({
  type: 'object',
  properties: {
    [`name${index}`]: { type: 'string', maxLength: 1 + (index % 30) },
    [`count${index}`]: { type: 'integer', minimum: index, maximum: index + 900 },
  },
  required: [`name${index}`, `count${index}`],
  additionalProperties: false,
})

type MakeRequest = (index: number) => readonly [path: string, body: object]

const REQUESTS: readonly MakeRequest[] = [
  (index) => ['/v1/chat/completions', { ...chat(index), stream: true, stop: [words(index, 1)] }],
  (index) => [
    '/v1/chat/completions',
    {
      ...chat(index),
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'form', strict: true, schema: form(index) },
      },
    },
  ],
  (index) => [
    '/v1/chat/completions',
    {
      ...chat(index),
      tools: [{ type: 'function', function: { name: `call${index}`, parameters: form(index) } }],
      tool_choice: 'required',
    },
  ],
  (index) => [
    '/v1/completions',
    {
      model: 'tiny-chat',
      prompt: Array.from({ length: 1 + (index % 4) }, (_, at) => words(index + at, 20)),
      max_tokens: 1 + (index % 20),
      logit_bias: { [index % 1000]: -5 },
      logprobs: index % 5,
    },
  ],
  (index) => [
    '/v1/embeddings',
    {
      model: 'tiny-embed',
      input: Array.from({ length: 1 + (index % 30) }, (_, at) => words(index + at, 1 + (at % 40))),
    },
  ],
  (index) => [
    '/v1/rerank',
    {
      model: 'tiny-rerank',
      query: words(index, 3),
      documents: Array.from({ length: 1 + (index % 20) }, (_, at) => words(at, 1 + at)),
    },
  ],
  (index) => ['/v1/chat/completions', { ...chat(index), model: `no model ${index}` }],
  () => ['/v1/embeddings', { model: 'tiny-embed', input: [] }],
  (index) => [`/v1/no-path-${index}`, {}],
]

const shown = (values: readonly number[]): string =>
  values.map((value) => Math.round(value)).join(' ')
