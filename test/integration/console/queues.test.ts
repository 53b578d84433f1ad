import { rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { deadLetters } from '#launcher/commands/dead-letters.ts'
import { toyRequest } from '#test/support/queue.ts'
import { API_KEY } from '#test/support/tiers.ts'
import { startToyWorker } from '#test/support/toy-worker.ts'

import { type ConsoleClient, type ConsoleStack, openConsole } from './console-stack.ts'

const CATALOGUE = join(tmpdir(), `console-queues-${process.pid}.json`)
const PROMPT = 'a prompt that no page may show'
const QUEUE = 'queues/completion.toy'
let stack: ConsoleStack
let operator: ConsoleClient
let worker: Awaited<ReturnType<typeof startToyWorker>>

beforeAll(async () => {
  const models = [{ id: 'toy', kind: 'completion', source: 'x', capabilities: ['completion'] }]
  await writeFile(CATALOGUE, JSON.stringify({ models }))
  stack = await openConsole({
    MILLRACE_CATALOGUE: CATALOGUE,
    MILLRACE_ENCRYPTION_KEY: 'a key of the tests for content in Redis',
  })
  worker = await startToyWorker(inject('redisUrl'), stack.keyPrefix)
  operator = await stack.signIn('operator')
})
afterAll(async () => {
  await worker?.stop()
  await stack?.close()
  await rm(CATALOGUE, { force: true })
})

/** A request whose job waits while its queue is paused. */
const complete = (prompt = PROMPT) =>
  stack.app.inject({
    method: 'POST',
    url: '/v1/completions',
    headers: { authorization: `Bearer ${API_KEY}` },
    payload: { model: 'toy', prompt, max_tokens: 3 },
  })
const jobs = async (): Promise<{ id: string; job_id: string; state: string }[]> =>
  (await operator.read(`${QUEUE}/jobs`)).rows

describe('a queue', () => {
  it('starts no job while it is paused, and all of them when it is resumed', async () => {
    await operator.send('POST', `${QUEUE}/pause`)
    const answer = complete()
    await expect.poll(async () => (await jobs()).length).toBe(1)
    const { rows } = await operator.read('queues')
    expect(rows).toMatchObject([{ name: 'completion.toy', is_paused: true, waiting: 1, active: 0 }])
    const { text } = await operator.attempt('GET', `${QUEUE}/jobs`)
    expect(text).not.toContain(PROMPT)
    await operator.send('POST', `${QUEUE}/resume`)
    expect((await answer).statusCode).toBe(200)
  })

  it('moves waiting jobs, and cancels one so that its client gets an error', async () => {
    await operator.send('POST', `${QUEUE}/pause`)
    const answers = [complete('one'), complete('two'), complete('three')]
    await expect.poll(async () => (await jobs()).length).toBe(3)
    const [first, second, third] = await jobs()
    await operator.send('POST', `${QUEUE}/jobs/${third?.id}/first`)
    await operator.send('POST', `${QUEUE}/jobs/${first?.id}/last`)
    expect((await jobs()).map(({ id }) => id)).toEqual([third?.id, second?.id, first?.id])
    await operator.send('POST', `${QUEUE}/jobs/${second?.id}/cancel`)
    await operator.send('POST', `${QUEUE}/resume`)
    const settled = await Promise.all(answers)
    expect(settled.map(({ statusCode }) => statusCode).sort()).toEqual([200, 200, 403])
    expect(settled.some(({ body }) => body.includes('job_cancelled'))).toBe(true)
    const gone = await operator.attempt('POST', `${QUEUE}/jobs/${second?.id}/cancel`)
    expect(gone.status).toBe(404)
  })

  it('does not affect running jobs', async () => {
    const answer = complete('stepMs=400')
    await expect.poll(async () => (await jobs())[0]?.state).toBe('active')
    const [job] = await jobs()
    const cancelled = await operator.attempt('POST', `${QUEUE}/jobs/${job?.id}/cancel`)
    expect(cancelled).toMatchObject({ status: 409, code: 'job_not_waiting' })
    expect((await answer).statusCode).toBe(200)
  })

  it('is not found by another name', async () => {
    expect((await operator.attempt('POST', 'queues/completion.none/pause')).status).toBe(404)
  })
})

describe('dead letters', () => {
  const record = (jobId: string, prompt: string, isKept: boolean) => {
    const input = {
      ...toyRequest(prompt, 5).input,
    }
    const envelope = { version: 1, jobId, epoch: 2, kind: 'completion', modelId: 'toy', input }
    const times = { organizationId: 'org', replyTo: '', enqueuedAtMs: 1, deadlineAtMs: 2 }
    const job = { ...envelope, ...times } as never
    return stack.services.submitter.deadLetters.record(job, 'worker_crashed', isKept)
  }
  const list = async () => (await operator.read('dead-letters')).rows

  it('are run again from their encrypted inputs, from the console and the command line', async () => {
    await record('job_console', PROMPT, true)
    await record('job_command', PROMPT, true)
    await record('job_empty', PROMPT, false)
    const kept = await stack.services.redis.get(`${stack.keyPrefix}:dead-input:job_console`)
    expect(kept).toBeTruthy()
    expect(Buffer.from(String(kept), 'base64').toString('latin1')).not.toContain('prompt')
    expect((await list()).map((row: { is_input_kept: boolean }) => row.is_input_kept)).toEqual([
      false,
      true,
      true,
    ])
    await operator.send('POST', 'dead-letters/job_console/retry')
    const ids = async () => (await list()).map((row: { id: string }) => row.id)
    await expect.poll(ids).toEqual(['job_empty', 'job_command'])
    const missing = await operator.attempt('POST', 'dead-letters/job_empty/retry')
    expect(missing).toMatchObject({ status: 409, code: 'input_not_kept' })
    expect((await operator.attempt('POST', 'dead-letters/none/retry')).status).toBe(404)
    await deadLetters(stack.env, { positionals: ['retry', 'job_command'], options: {} })
    await expect(
      deadLetters(stack.env, { positionals: ['retry', 'job_command'], options: {} }),
    ).rejects.toThrow('No such dead letter')
    expect(await ids()).toEqual(['job_empty'])
    await operator.send('DELETE', 'dead-letters')
  })

  it('keep a record whose retry fails otherwise', async () => {
    await record('job_bad', 'bad', true)
    await operator.send('POST', 'dead-letters/job_bad/retry')
    await expect.poll(async () => (await jobs()).length).toBe(0)
    expect(await list()).toMatchObject([{ id: 'job_bad', is_input_kept: true }])
    await operator.send('DELETE', 'dead-letters')
  })

  it('are listed without their inputs, and cleared', async () => {
    await record('job_dead', PROMPT, true)
    const { rows } = await operator.read('dead-letters')
    expect(rows).toMatchObject([{ id: 'job_dead', model: 'toy', reason: 'worker_crashed' }])
    expect(JSON.stringify(rows)).not.toContain(PROMPT)
    await operator.send('DELETE', 'dead-letters')
    expect(await list()).toEqual([])
    expect(await stack.services.redis.keys(`${stack.keyPrefix}:dead-*`)).toEqual([])
  })
})

describe('a model', () => {
  it('shows where it is loaded, and refuses requests while it is disabled', async () => {
    const read = async () => (await operator.read('models')).rows[0]
    expect(await read()).toMatchObject({
      id: 'toy',
      disabled: null,
      places: [{ is_ready: true, slots: 16, bytes: 1, load_error: null }],
    })
    await operator.send('POST', 'models/toy/disable', { reason: 'new version tonight' })
    expect((await read()).disabled).toMatchObject({ reason: 'new version tonight' })
    await expect.poll(async () => (await complete()).json().error?.code).toBe('model_disabled')
    await operator.send('POST', 'models/toy/enable')
    await expect.poll(async () => (await complete()).statusCode).toBe(200)
  })
})

describe('an added model', () => {
  const source = 'hub:someone/some-model'
  const added = { id: 'added', kind: 'embedding', source, capabilities: ['embedding'] }
  const find = async (id: string) =>
    (await operator.read('models')).rows.find((row: { id: string }) => row.id === id)

  it('is offered at once, also by other processes, until it is removed', async () => {
    const administrator = await stack.signIn('administrator')
    await administrator.send('POST', 'models', { ...added, onnxFile: 'model_q4' })
    expect(await find('added')).toMatchObject({ source, added: { by: expect.any(String) } })
    expect(await find('toy')).toMatchObject({ added: null })
    expect((await stack.v1('GET', '/models/added')).id).toBe('added')
    expect((await operator.read('queues')).rows).toHaveLength(2)
    const refused = [
      [{ ...added }, 409, 'model_exists'],
      [{ ...added, id: 'toy' }, 409, 'model_exists'],
      [{ ...added, id: 'x', capabilities: ['chat'] }, 400, 'capabilities'],
      [{ ...added, id: 'x', source: '/etc' }, 400, 'source'],
      [{ ...added, id: 'x', source: 'hub:nowhere' }, 400, 'source'],
      [{ ...added, id: 'x', kind: 'training' }, 400, 'kind'],
    ] as const
    for (const [body, status, named] of refused) {
      const answer = await administrator.attempt('POST', 'models', { body })
      expect([body, answer.status]).toEqual([body, status])
      expect(answer.text).toContain(named)
    }
    expect((await operator.attempt('POST', 'models', { body: added })).status).toBe(403)
    const listed = await administrator.attempt('DELETE', 'models/toy')
    expect(listed).toMatchObject({ status: 409, code: 'model_listed' })
    await administrator.send('DELETE', 'models/added')
    expect(await find('added')).toBeUndefined()
    expect((await stack.v1('GET', '/models/added')).error).toBeTruthy()
    expect((await administrator.attempt('DELETE', 'models/added')).status).toBe(404)
  })
})

describe('an added model', () => {
  it.each(['constructor', '__proto__'])('may have the name of any property: %s', async (id) => {
    const administrator = await stack.signIn('administrator')
    const source = 'hub:someone/some-model'
    await administrator.send('POST', 'models', { id, kind: 'embedding', source })
    const { rows } = await administrator.read('models')
    const found = rows.find((row: { id: string }) => row.id === id)
    expect(found).toMatchObject({ source, disabled: null, added: { by: expect.any(String) } })
    await administrator.send('DELETE', `models/${id}`)
  })
})

describe('the time series', () => {
  it('add requests, tokens and durations of all processes, and sample the slots', async () => {
    await complete()
    expect(
      (await stack.v1('POST', '/completions', { model: 'none', prompt: 'x' })).error,
    ).toBeTruthy()
    // The process samples by itself too, once per lease.
    await stack.services.redis.del(`${stack.keyPrefix}:admin:series:sampler`)
    await stack.services.series.sample(async () => ({
      slots: 16,
      slotsUsed: 4,
      waiting: 2,
      oldestWaitMs: 1500,
    }))
    await stack.services.series.flush()
    for (const range of ['hour', 'day']) {
      const { points, bucket_ms: bucketMs } = await operator.read(`series?range=${range}`)
      expect(points).toHaveLength(range === 'hour' ? 60 : 96)
      const recent = points.slice(-2) as Record<string, number>[]
      const sum = (name: string) => recent.reduce((total, point) => total + (point[name] ?? 0), 0)
      expect(sum('requests')).toBeGreaterThan(5)
      expect(sum('refusals')).toBeGreaterThan(0)
      expect(sum('completion_tokens')).toBeGreaterThanOrEqual(15)
      expect(sum('latency_p99_ms')).toBeGreaterThanOrEqual(sum('latency_p50_ms'))
      expect(points.at(-1).at - points.at(-2).at).toBe(bucketMs)
      expect(recent.map((point) => point.slots)).toContain(16)
      const oldestMs = Math.max(...recent.map((point) => point.oldest_wait_ms ?? 0))
      expect(oldestMs).toBeGreaterThanOrEqual(1500)
    }
  })
})
