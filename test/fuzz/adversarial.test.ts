import { randomUUID } from 'node:crypto'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { BATCH_ENDPOINTS } from '#api/batches/batch.ts'
import { JSON_HEADERS, openTarget, type Target } from '#test/integration/limits/hostile-target.ts'
import { quantile, report } from '#test/support/fault-report.ts'
import { createRandom } from '#test/support/random.ts'
import { API_KEY } from '#test/support/tiers.ts'
import { slowness } from '#test/support/watched-process.ts'

import { answersOfBatch } from './adversarial-batches.ts'
import { FIELDS, type SizedRequest } from './adversarial-fields.ts'
import { type LargeRequest, largeRequests } from './adversarial-operations.ts'
import { type Document, listOperations, nameOf, type Operation } from './document.ts'
import { serviceToken, UNLIMITED } from './target.ts'

const SETUP_TIMEOUT_MS = 400_000
/** The largest sizes exceed the limits; 900,000 numbers are within the bytes of a body. */
const SIZES = [3000, 50_000, 900_000]
const LARGE_SIZE = 900_000
/** The size of a batch line: within the limits of most fields, beyond those of others. */
const LINE_SIZE = 3000
const LARGE_REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 1500) / 75
const BODY_CHARACTERS_MAX = 6_000_000
// Processor time of one turn of the event loop, at the usual pace of a core.
const TURN_MS_MAX = { api: 100, worker: 250 }
// Beyond what a small request takes by itself.
const WAIT_MS_MAX = 250
// A request that holds others up does so each time; another process of the machine does not. Tests
// of other files can have the cores for seconds.
const TRIES = 10
const GROWTH_MIB_MAX = 64

/** The cost of the requests of one field for other requests. */
interface Cost {
  readonly api: number
  readonly worker: number
  readonly wait: number
}

let target: Target
const costs = new Map<string, Cost>()
let calm: Cost
let before = { api: 0, worker: 0 }

beforeAll(async () => {
  target = await openTarget(UNLIMITED)
  // The first requests of each kind compile validators and start threads.
  for (const sized of Object.values(FIELDS)) expect(await send(sized(100))).toBeLessThan(500)
  await send(FIELDS['content of words']?.(100_000))
  calm = await costOfNothing()
  before = await heaps()
}, SETUP_TIMEOUT_MS)

afterAll(async () => {
  for (const kind of ['api', 'worker', 'wait'] as const) {
    const all = [...costs].toSorted(([, a], [, b]) => b[kind] - a[kind])
    const values = all.map(([, cost]) => cost[kind])
    report(`adversarial sizes, ${kind}`, {
      fields: all.length,
      'p50 ms': quantile(values, 0.5),
      'p90 ms': quantile(values, 0.9),
      'at most ms': Math.max(...values),
      'worst fields': all
        .slice(0, 3)
        .map(([name]) => name)
        .join(', '),
      'without them ms': calm[kind],
    })
  }
  await target.close()
})

async function send([path, body, headers] = ['', {}] as SizedRequest): Promise<number> {
  return (await target.post(path, JSON.stringify(body), { ...JSON_HEADERS, ...headers })).status
}

async function smallRequest(): Promise<void> {
  expect(await send(['/embeddings', { model: 'embed', input: 'Still here.' }])).toBe(200)
}

/** How long a small request takes that is sent while something else goes on. */
async function besides(act: () => Promise<void>): Promise<number> {
  const acting = act()
  const from = performance.now()
  await smallRequest()
  const waited = performance.now() - from
  await acting
  return waited
}

async function turns() {
  const { api, worker } = target.watched
  return { api: await api.loopDelayMs(), worker: await worker.loopDelayMs() }
}

async function costOfNothing(): Promise<Cost> {
  await turns()
  const waits: number[] = []
  for (let time = 0; time < 20; time += 1) waits.push(await besides(() => smallRequest()))
  return { ...(await turns()), wait: Math.max(...waits) }
}

/** Sends a field in every size, with a small request of another kind beside each. */
async function costOf(name: string): Promise<Cost> {
  // Garbage that was collected for another measurement took turns too.
  await turns()
  const waits: number[] = []
  for (const size of SIZES) {
    const request = FIELDS[name]?.(size)
    if (JSON.stringify(request).length > BODY_CHARACTERS_MAX) continue
    let status = 0
    waits.push(
      await besides(async () => {
        status = await send(request)
      }),
    )
    const isAnswered = (status >= 200 && status < 300) || (status >= 400 && status < 500)
    expect({ size, status, isAnswered }).toMatchObject({ isAnswered: true })
  }
  return { ...(await turns()), wait: Math.max(...waits) }
}

/**
 * The least of several tries, as long as one is beyond the bounds, and whether all were: that is
 * judged once for each try, because the pace of the machine is another a moment later.
 */
async function leastCostOf<Measured extends Cost>(
  measure: () => Promise<Measured>,
): Promise<Measured & { readonly isTooMuch: boolean }> {
  let least = await measure()
  let tooMuch = isTooMuch(least)
  for (let tries = 1; tries < TRIES && tooMuch; tries += 1) {
    calm = await costOfNothing()
    const next = await measure()
    least = {
      ...next,
      api: Math.min(least.api, next.api),
      worker: Math.min(least.worker, next.worker),
      wait: Math.min(least.wait, next.wait),
    }
    tooMuch = isTooMuch(least)
  }
  return { ...least, isTooMuch: tooMuch }
}

/** Whether others are held up too long, at the pace that the machine has now. */
function isTooMuch({ api, worker, wait }: Cost): boolean {
  const isBeyond = (pace: number): boolean =>
    api > TURN_MS_MAX.api * pace ||
    worker > TURN_MS_MAX.worker * pace ||
    wait > WAIT_MS_MAX * pace + calm.wait
  return isBeyond(1) && isBeyond(slowness())
}

/** A credential with which an operation is allowed; sign-outs end that of a user. */
async function credentialFor({ surface, path }: Operation): Promise<string> {
  if (surface === 'v1' || surface === 'messages' || surface === 'cohere') return API_KEY
  if (/\/(admin|invite)/.test(path)) return serviceToken()
  const answer = await fetch(`${target.api.url}/signup`, {
    method: 'POST',
    headers: JSON_HEADERS,
    body: JSON.stringify({ email: `${randomUUID()}@example.test`, password: 'correct horse' }),
  })
  return ((await answer.json()) as { access_token: string }).access_token
}

async function costOfLarge(
  { method, path, type, writeBody }: LargeRequest,
  credential: string,
): Promise<Cost & { readonly status: number }> {
  const body = writeBody?.()
  await turns()
  const answer = await fetch(`${target.api.url}${path}`, {
    method,
    redirect: 'manual',
    headers: {
      authorization: `Bearer ${credential}`,
      ...(type !== undefined && { 'content-type': type }),
    },
    ...(body !== undefined && { body }),
  })
  await answer.arrayBuffer()
  // The wait of others is measured for the listed fields alone.
  return { ...(await turns()), wait: 0, status: answer.status }
}

async function heaps() {
  const { api, worker } = target.watched
  return { api: await api.collectedMib(), worker: await worker.collectedMib() }
}

describe('requests of every size', () => {
  it.each(Object.keys(FIELDS))(
    'in %s are answered or refused, and hold up neither process nor other requests',
    { timeout: 120_000 },
    async (name) => {
      const cost = await leastCostOf(() => costOf(name))
      costs.set(name, cost)
      expect([target.api.isRunning(), target.worker.isRunning()]).toEqual([true, true])
      expect(cost).toMatchObject({ isTooMuch: false })
    },
  )

  it('in lines of a batch are answered or refused', { timeout: 300_000 }, async () => {
    const requests = Object.values(FIELDS).map((sized) => sized(LINE_SIZE))
    const lines = Map.groupBy(requests, ([path]) => `/v1${path}`)
    const endpoints = [...lines.keys()].filter((path) => Object.hasOwn(BATCH_ENDPOINTS, path))
    expect(endpoints.length).toBeGreaterThan(4)
    const costOfLines = async (): Promise<Cost> => {
      await turns()
      for (const endpoint of endpoints) {
        const bodies = (lines.get(endpoint) ?? []).map(([, body]) => body)
        const { status, answers } = await answersOfBatch(target.api.url, endpoint, bodies)
        const failures = answers.filter((code) => code >= 500)
        expect({ endpoint, status, failures }).toEqual({
          endpoint,
          status: 'completed',
          failures: [],
        })
        expect(answers).toHaveLength(bodies.length)
      }
      // The bound of the worker is that of single requests; these come many at a time.
      return { api: (await turns()).api, worker: 0, wait: 0 }
    }
    const cost = await leastCostOf(costOfLines)
    expect(cost).toMatchObject({ isTooMuch: false })
  })

  it('in any field of any operation hold up neither process', { timeout: 600_000 }, async () => {
    const answer = await fetch(`${target.api.url}/openapi.json`)
    const operations = listOperations((await answer.json()) as Document)
    const all = operations.flatMap((operation) =>
      largeRequests(operation, LARGE_SIZE).map((request) => ({ operation, request })),
    )
    const random = createRandom()
    const rest = [...all]
    const drawn: typeof all = []
    while (drawn.length < LARGE_REQUESTS && rest.length > 0)
      drawn.push(...rest.splice(Math.floor(random() * rest.length), 1))
    const findings: object[] = []
    for (const { operation, request } of drawn) {
      const credential = await credentialFor(operation)
      const cost = await leastCostOf(() => costOfLarge(request, credential))
      const isAnswered = cost.status < 500 || cost.status === 501
      if (isAnswered && !cost.isTooMuch) continue
      findings.push({ operation: nameOf(operation), field: request.name, ...cost })
    }
    report('large fields', { fields: all.length, sent: drawn.length })
    expect(findings).toEqual([])
    expect(all.length).toBeGreaterThan(20)
  })

  it('leave the memory of both processes as it was', async () => {
    const after = await heaps()
    expect(after.api - before.api).toBeLessThan(GROWTH_MIB_MAX)
    expect(after.worker - before.worker).toBeLessThan(GROWTH_MIB_MAX)
  })
})
