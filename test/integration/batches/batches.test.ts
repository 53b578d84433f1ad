import { describe, expect, it } from 'vitest'

import { failure } from '#shared/errors.ts'

import { createBatch, ENDPOINT, ids, line, reach, readLines } from './batch-client.ts'
import { useBatches } from './batch-suite.ts'

const suite = useBatches()

describe('a batch', () => {
  it('answers every line once, with successes and failures in separate files', async () => {
    suite.service.execute = async ({ body, organizationId, endpoint }) => {
      const { text } = body as { text: string }
      if (text === 'r1') throw failure.invalidRequest('No.', { param: 'messages', code: 'bad' })
      return { echo: text, organizationId, endpoint }
    }
    const created = await createBatch(
      suite.client,
      ids(3).map((id) => line(id)),
      { output_expires_after: { anchor: 'created_at', seconds: 3600 } },
    )
    expect(created).toMatchObject({
      object: 'batch',
      status: 'validating',
      endpoint: ENDPOINT,
      completion_window: '24h',
      output_file_id: null,
      error_file_id: null,
      errors: null,
      metadata: { job: 'nightly' },
      request_counts: { total: 0, completed: 0, failed: 0 },
      model: null,
      usage: { input_tokens: 0, output_tokens: 0, total_tokens: 0 },
    })
    expect(created.expires_at).toBe(created.created_at + 24 * 3600)
    suite.start()
    const done = await reach(suite.client, created.id, 'completed')
    expect(done.request_counts).toEqual({ total: 3, completed: 2, failed: 1 })
    expect(done.model).toBe('tiny-chat')
    expect(done.usage).toEqual({
      input_tokens: 10,
      input_tokens_details: { cached_tokens: 4 },
      output_tokens: 6,
      output_tokens_details: { reasoning_tokens: 2 },
      total_tokens: 16,
    })
    for (const moment of [done.in_progress_at, done.finalizing_at, done.completed_at]) {
      expect(moment).toBeGreaterThanOrEqual(done.created_at)
    }
    const output = await readLines(suite.client, done.output_file_id)
    expect(output.map(({ custom_id }) => custom_id)).toEqual(['r0', 'r2'])
    expect(output[0]).toEqual({
      id: expect.stringMatching(/^batch_req_\w+$/),
      custom_id: 'r0',
      response: {
        status_code: 200,
        request_id: output[0]?.id,
        body: { echo: 'r0', organizationId: expect.any(String), endpoint: ENDPOINT },
      },
      error: null,
    })
    const [failed] = await readLines(suite.client, done.error_file_id)
    expect(failed).toMatchObject({
      custom_id: 'r1',
      error: null,
      response: { status_code: 400, body: { error: { param: 'messages', code: 'bad' } } },
    })
    const file = await suite.client.files.retrieve(done.output_file_id as string)
    expect(file).toMatchObject({ purpose: 'batch_output', filename: `${done.id}_output.jsonl` })
    expect(file.expires_at).toBe(file.created_at + 3600)
  })

  it('is shared by several processes, and each line is run and written once', async () => {
    const runs = new Map<string, number>()
    suite.service.execute = async ({ body }) => {
      const { text } = body as { text: string }
      runs.set(text, (runs.get(text) ?? 0) + 1)
      await new Promise((resolve) => setTimeout(resolve, 5))
      return {}
    }
    const { id } = await createBatch(
      suite.client,
      ids(300).map((name) => line(name)),
    )
    suite.start(3)
    const done = await reach(suite.client, id, 'completed')
    expect(done.request_counts).toEqual({ total: 300, completed: 300, failed: 0 })
    const output = await readLines(suite.client, done.output_file_id)
    expect(output.map(({ custom_id }) => custom_id)).toEqual(ids(300))
    expect([...runs.values()].every((count) => count === 1)).toBe(true)
    expect(done.error_file_id).toBeNull()
  })

  it('continues after the process that ran its lines died', async () => {
    let hasDied = false
    suite.service.execute = async ({ body, signal }) => {
      // The first process hangs with what it has, and never says anything again.
      if (!hasDied) await new Promise((resolve) => signal.addEventListener('abort', resolve))
      return { echo: (body as { text: string }).text }
    }
    const { id } = await createBatch(
      suite.client,
      ids(40).map((name) => line(name)),
    )
    suite.start()
    await reach(suite.client, id, 'in_progress')
    await expect.poll(() => countRunning(id)).toBe(32)
    // As if its leases had run out, unrenewed; what it says later is too late.
    await suite.service.database.pool.query(
      "update batch_lines set lease_id = gen_random_uuid(), lease_until = now() - interval '1 s' where batch_id = $1 and state = 'running'",
      [id],
    )
    hasDied = true
    suite.start()
    const done = await reach(suite.client, id, 'completed')
    expect(done.request_counts).toEqual({ total: 40, completed: 40, failed: 0 })
    expect(await readLines(suite.client, done.output_file_id)).toHaveLength(40)
  })

  it.for([
    ['validating', 'get'],
    ['finalizing', 'put'],
  ] as const)('goes on after the process that was %s it died', async ([status, operation]) => {
    const { service, client, drivers } = suite
    const reached = Promise.withResolvers<void>()
    const revived = Promise.withResolvers<void>()
    const hangs = async (): Promise<never> => {
      reached.resolve()
      await revived.promise
      throw new Error('too late')
    }
    drivers.push(service.startDriver({ store: { ...service.store, [operation]: hangs } }))
    const { id } = await createBatch(
      client,
      ids(3).map((name) => line(name)),
    )
    await reached.promise
    expect((await client.batches.retrieve(id)).status).toBe(status)
    // As if its lease had run out, unrenewed.
    await service.database.pool.query(
      "update batches set lease_id = gen_random_uuid(), lease_until = now() - interval '1 s' where id = $1",
      [id],
    )
    suite.start()
    const done = await reach(client, id, 'completed')
    revived.resolve()
    expect(done.request_counts).toEqual({ total: 3, completed: 3, failed: 0 })
    expect(await readLines(client, done.output_file_id)).toHaveLength(3)
  })

  it('gives its running lines back when its process stops', async () => {
    suite.service.execute = ({ signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('stopped')))
      })
    const { id } = await createBatch(suite.client, [line('r0')])
    suite.start()
    await expect.poll(() => countRunning(id)).toBe(1)
    await suite.drivers.pop()?.stop()
    expect(await countRunning(id)).toBe(0)
    suite.service.execute = async () => ({})
    suite.start()
    expect((await reach(suite.client, id, 'completed')).request_counts?.completed).toBe(1)
  })

  it('retries temporary failures, and answers permanent ones', async () => {
    let tries = 0
    suite.service.execute = async ({ body }) => {
      tries += 1
      if ((body as { text: string }).text === 'r0' && tries === 1) throw new Error('a bug')
      return {}
    }
    const { id } = await createBatch(suite.client, [line('r0')])
    suite.start()
    await reach(suite.client, id, 'completed')
    expect(tries).toBe(2)
  })

  it('keeps its answers when it is cancelled, and accounts for the rest', async () => {
    suite.service.execute = ({ body, signal }) => {
      if ((body as { text: string }).text === 'r0') return Promise.resolve({})
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('stopped')))
      })
    }
    const { id } = await createBatch(
      suite.client,
      ids(3).map((name) => line(name)),
    )
    suite.start()
    await expect
      .poll(async () => (await suite.client.batches.retrieve(id)).request_counts?.completed)
      .toBe(1)
    expect((await suite.client.batches.cancel(id)).status).toBe('cancelling')
    const done = await reach(suite.client, id, 'cancelled')
    expect(done.request_counts).toEqual({ total: 3, completed: 1, failed: 2 })
    expect(
      (await readLines(suite.client, done.output_file_id)).map((row) => row.custom_id),
    ).toEqual(['r0'])
    const rest = await readLines(suite.client, done.error_file_id)
    expect(rest.map(({ custom_id, error }) => [custom_id, error?.code])).toEqual([
      ['r1', 'batch_cancelled'],
      ['r2', 'batch_cancelled'],
    ])
    expect((await suite.client.batches.cancel(id)).status).toBe('cancelled')
  })

  it('expires after its day with the answers so far', async () => {
    const { id } = await createBatch(
      suite.client,
      ids(2).map((name) => line(name)),
    )
    suite.service.execute = async ({ body }) => {
      if ((body as { text: string }).text === 'r0') return {}
      throw failure.overloaded('Busy.')
    }
    suite.start()
    await expect
      .poll(async () => (await suite.client.batches.retrieve(id)).request_counts?.completed)
      .toBe(1)
    await suite.service.database.pool.query('update batches set expires_at = now() where id = $1', [
      id,
    ])
    const done = await reach(suite.client, id, 'expired')
    expect(done.request_counts).toEqual({ total: 2, completed: 1, failed: 1 })
    expect(await readLines(suite.client, done.error_file_id)).toMatchObject([
      { custom_id: 'r1', response: null, error: { code: 'batch_expired' } },
    ])
  })

  it('alternates with others', async () => {
    const order: string[] = []
    const areBothRunning = Promise.withResolvers<void>()
    suite.service.execute = async ({ body }) => {
      order.push((body as { text: string }).text)
      await areBothRunning.promise
      return {}
    }
    const long = await createBatch(
      suite.client,
      ids(200).map((name) => line(name)),
    )
    const short = await createBatch(suite.client, [line('short')])
    suite.start()
    await reach(suite.client, long.id, 'in_progress')
    await reach(suite.client, short.id, 'in_progress')
    areBothRunning.resolve()
    await reach(suite.client, long.id, 'completed')
    await reach(suite.client, short.id, 'completed')
    expect(order.indexOf('short')).toBeLessThan(150)
  })

  async function countRunning(id: string): Promise<number> {
    const { rows } = await suite.service.database.pool.query(
      "select count(*)::int as count from batch_lines where batch_id = $1 and state = 'running'",
      [id],
    )
    return rows[0].count
  }
})
