import { randomUUID } from 'node:crypto'

import { Redis } from 'ioredis'
import { Client } from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'

import { startOwnTiers } from '#test/support/own-tiers.ts'
import { ONE_MODEL } from '#test/support/tiers.ts'

// Ids 0, 1 and 2 end the text of the shipped model; without them it goes on to the limit.
const ENDLESS = { '0': -100, '1': -100, '2': -100 }
// No seed: a second run gives another text.
const COMPLETION = {
  model: 'tiny-chat',
  prompt: 'Once upon a time',
  max_tokens: 500,
  temperature: 1,
  logit_bias: ENDLESS,
}
const TIMEOUT = { timeout: 240_000 }
const POLL = { timeout: 60_000, interval: 20 }

type OwnTiers = Awaited<ReturnType<typeof startOwnTiers>>

let tiers: OwnTiers
let worker: Awaited<ReturnType<OwnTiers['startWorker']>>
let other: Awaited<ReturnType<OwnTiers['startApi']>>
let redis: Redis
let sql: Client

beforeAll(async () => {
  tiers = await startOwnTiers(ONE_MODEL)
  redis = new Redis(tiers.redisUrl)
  sql = new Client({ connectionString: tiers.databaseUrl })
  await sql.connect()
  ;[worker, other] = await Promise.all([tiers.startWorker(), tiers.startApi()])
})
afterAll(async () => {
  redis.disconnect()
  await sql.end()
  await tiers.stop()
})

// Every test awaits the rows of its own requests, and counts from nothing.
beforeEach(async () => {
  await sql.query('delete from usage')
  const runs = await runKeys()
  if (runs.length > 0) await redis.del(runs)
})

const runKeys = () => redis.keys(`${tiers.keyPrefix}:claim:*`)
/** Runs that workers began. */
const countRuns = async () => (await runKeys()).length
const usageRows = async () =>
  (await sql.query('select job_id, outcome, completion_tokens from usage')).rows
const send = (url: string, key: string | undefined, body: object, signal?: AbortSignal) =>
  fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${tiers.apiKey}`,
      'content-type': 'application/json',
      ...(key !== undefined && { 'idempotency-key': key }),
    },
    body: JSON.stringify(body),
    ...(signal !== undefined && { signal }),
  })

/** Reads until there are so many characters, and stays connected. */
async function readSome(answer: Response, chars: number): Promise<string> {
  const reader = answer.body?.getReader()
  const decoder = new TextDecoder()
  let text = ''
  while (text.length < chars) {
    const { value, done } = (await reader?.read()) ?? { value: undefined, done: true }
    if (done) break
    text += decoder.decode(value, { stream: true })
  }
  return text
}

describe('a request whose API process is killed', () => {
  it(
    'continues as the same stream under its Idempotency-Key, run once and billed once',
    TIMEOUT,
    async () => {
      const doomed = await tiers.startApi()
      const key = randomUUID()
      const body = { ...COMPLETION, stream: true, stream_options: { include_usage: true } }
      const first = await readSome(await send(doomed.url, key, body), 3000)
      await doomed.process.stop(0)
      const again = await send(tiers.url, key, body)
      expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([200, null])
      const whole = await again.text()
      expect(first.length).toBeGreaterThanOrEqual(3000)
      expect(whole.startsWith(first)).toBe(true)
      expect(whole).toMatch(/data: \[DONE\]\n\n$/)
      expect(whole).toContain('"completion_tokens":500')
      const replayed = await send(tiers.url, key, body)
      expect(replayed.headers.get('idempotent-replayed')).toBe('true')
      expect(await replayed.text()).toBe(whole)
      expect(await countRuns()).toBe(1)
      await expect
        .poll(usageRows, POLL)
        .toMatchObject([{ outcome: 'finished', completion_tokens: '500' }])
      const replies = () => redis.keys(`${tiers.keyPrefix}:replies-of-job:*`)
      await expect.poll(replies, POLL).toEqual([])
    },
  )

  it(
    'is answered whole by another one that asks while it runs, or after it has ended',
    TIMEOUT,
    async () => {
      const doomed = await tiers.startApi()
      const [early, late] = [randomUUID(), randomUUID()]
      const body = { ...COMPLETION, n: 2 }
      const lost = [early, late].map((key) => send(doomed.url, key, body).catch(() => 'lost'))
      await expect.poll(countRuns, POLL).toBe(2)
      await doomed.process.stop(0)
      expect(await Promise.all(lost)).toEqual(['lost', 'lost'])
      const first = await send(tiers.url, early, body)
      const { id, choices, usage } = (await first.json()) as {
        id: string
        choices: { text: string }[]
        usage: { completion_tokens: number }
      }
      expect([first.status, choices.length, usage.completion_tokens]).toEqual([200, 2, 1000])
      // The other one's worker is through with it before it is asked for.
      await expect
        .poll(
          async () => (await redis.keys(`${tiers.keyPrefix}:completion.tiny-chat:job_*`)).length,
          POLL,
        )
        .toBe(0)
      const second = await send(tiers.url, late, body)
      expect(second.status).toBe(200)
      const other = (await second.json()) as { id: string; usage: object }
      expect(other).toMatchObject({ usage: { completion_tokens: 1000 } })
      expect(other.id).not.toBe(id)
      expect(await countRuns()).toBe(2)
      await expect.poll(async () => (await usageRows()).length, POLL).toBe(2)
    },
  )

  it('continues when its worker is killed at the same time', TIMEOUT, async () => {
    const doomed = await tiers.startApi()
    const key = randomUUID()
    const body = { ...COMPLETION, temperature: 0, frequency_penalty: 0.7, stream: true }
    const undisturbed = await (await send(tiers.url, randomUUID(), body)).text()
    const first = await readSome(await send(doomed.url, key, body), 3000)
    await Promise.all([doomed.process.stop(0), worker.kill()])
    worker = await tiers.startWorker()
    const whole = await (await send(tiers.url, key, body)).text()
    expect(whole.slice(0, first.length)).toBe(first)
    expect(textOf(whole)).toBe(textOf(undisturbed))
    await expect.poll(async () => (await usageRows()).length, POLL).toBe(2)
  })
})

describe('a client that leaves', () => {
  it.each([true, false])(
    'finds its answer under its Idempotency-Key, run once and billed once (stream: %s)',
    TIMEOUT,
    async (stream) => {
      const key = randomUUID()
      const body = {
        ...COMPLETION,
        stream,
        ...(stream && { stream_options: { include_usage: true } }),
      }
      await leave(key, body)
      const again = await send(other.url, key, body)
      expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([200, 'true'])
      const text = await again.text()
      expect(text).toContain('"completion_tokens":500')
      if (stream) expect(text).toMatch(/data: \[DONE\]\n\n$/)
      expect(await countRuns()).toBe(1)
      await expect
        .poll(usageRows, POLL)
        .toMatchObject([{ outcome: 'finished', completion_tokens: '500' }])
    },
  )

  it('ends its job without one', TIMEOUT, async () => {
    const leaving = new AbortController()
    // Long enough that a slow client leaves before the end.
    const body = { ...COMPLETION, stream: true, max_tokens: 1000, n: 8 }
    // Its first delta shows that it has begun: undelivered tokens are not charged.
    await readSome(await send(tiers.url, undefined, body, leaving.signal), 1)
    leaving.abort()
    await expect.poll(usageRows, POLL).toMatchObject([{ outcome: 'abandoned' }])
    const [row] = await usageRows()
    expect(Number(row?.completion_tokens)).toBeLessThan(8 * 1000)
  })
})

/** Leaves when the job runs. */
async function leave(key: string, body: object): Promise<void> {
  const leaving = new AbortController()
  const left = send(tiers.url, key, body, leaving.signal)
    .then((answer) => answer.text())
    .catch(() => 'left')
  await expect.poll(countRuns, POLL).toBe(1)
  leaving.abort()
  expect(await left).toBe('left')
}

function textOf(stream: string): string {
  return stream
    .split('\n\n')
    .filter((event) => event.startsWith('data: {'))
    .map((event) => JSON.parse(event.slice(6)).choices[0]?.text ?? '')
    .join('')
}
