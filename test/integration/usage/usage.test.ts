import { randomUUID } from 'node:crypto'

import { afterEach, describe, expect } from 'vitest'

import type { QuotaState } from '#api/limits/quotas.ts'
import { usagePlugin } from '#api/usage/routes.ts'
import { createUsageMeter } from '#api/usage/usage-meter.ts'
import { openUsageRecord } from '#api/usage/usage-store.ts'
import { systemClock } from '#shared/clock.ts'
import type { Database } from '#shared/db/client.ts'
import { usageTables } from '#shared/db/schema/usage.ts'
import { openTestSubmitter, toyRequest } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'
import { startToyWorker } from '#test/support/toy-worker.ts'
import { openV1App } from '#test/support/v1-app.ts'

import { openWriter, rowOf } from './usage-rows.ts'

const closers: (() => unknown)[] = []

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

async function openMetered(database: Database, redisUrl: string, prefix: string) {
  const usage = openUsageRecord(database.db, usageTables(''))
  const usageWriter = openWriter(usage)
  const meter = createUsageMeter({ writer: usageWriter, clock: systemClock })
  const submitter = await openTestSubmitter(redisUrl, prefix, 1000, [meter])
  closers.push(() => submitter.close())
  const worker = await startToyWorker(redisUrl, prefix)
  closers.push(() => worker.stop())
  const recorded: number[] = []
  return {
    usage,
    usageWriter,
    recorded,
    metered: submitter,
    account: {
      requestId: 'req_1',
      apiKeyId: 'key_1',
      userId: undefined,
      noteUse: ({ tokens }: { tokens: number }) => recorded.push(tokens),
    },
    rows: async () => {
      await usageWriter.close()
      return database.db.select().from(usageTables('').usage)
    },
  }
}

describe('the use of a job', () => {
  it('is one row with its actual tokens, for every kind of caller', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const { metered, account, recorded, rows } = await openMetered(database, redisUrl, keyPrefix)
    for await (const _ of metered.submit(toyRequest('hello', 7, { account })));
    expect(await rows()).toMatchObject([
      {
        jobId: expect.stringMatching(/^job_/),
        apiKeyId: 'key_1',
        requestId: 'req_1',
        modelId: 'toy',
        kind: 'completion',
        outcome: 'finished',
        promptTokens: 1,
        completionTokens: 7,
      },
    ])
    expect(recorded).toEqual([8])
  })

  it('counts the tokens so far when the client disconnects', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const { metered, account, recorded, rows } = await openMetered(database, redisUrl, keyPrefix)
    let tokens = 0
    for await (const event of metered.submit(toyRequest('stepMs=5', 500, { account }))) {
      if (event.type === 'delta') tokens += event.deltas.flatMap(({ tokenIds }) => tokenIds).length
      if (tokens >= 3) break
    }
    expect(await rows()).toMatchObject([{ outcome: 'abandoned', completionTokens: tokens }])
    expect(recorded).toEqual([1 + tokens])
  })

  it('is zero if the job was refused', async ({ database, redisUrl, keyPrefix }) => {
    const { metered, rows } = await openMetered(database, redisUrl, keyPrefix)
    const reading = (async () => {
      for await (const _ of metered.submit(toyRequest('bad', 7)));
    })()
    await expect(reading).rejects.toThrow('refused by the toy')
    expect(await rows()).toEqual([])
  })

  it('is charged once if a line of a batch is run again', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const { metered, account, rows } = await openMetered(database, redisUrl, keyPrefix)
    const line = { ...account, usageId: 'batch_1:7' }
    for (let run = 0; run < 2; run += 1) {
      for await (const _ of metered.submit(toyRequest('hello', 7, { account: line })));
    }
    expect(await rows()).toMatchObject([{ jobId: 'batch_1:7', completionTokens: 7 }])
  })
})

describe('GET /v1/usage', () => {
  const MARCH = `start_time=${Date.parse('2026-03-01') / 1000}&end_time=${Date.parse('2026-04-01') / 1000}`

  const STATE: QuotaState = {
    of: 'api_key',
    period: 'month',
    amount: 'cost',
    limit: 2,
    used: 2.5,
    resetsAtMs: Date.parse('2026-04-01'),
  }

  async function openSurface(database: Database) {
    const usage = openUsageRecord(database.db, usageTables(''))
    const usageWriter = openWriter(usage)
    const surface = await openV1App(database, [
      usagePlugin({ usage, usageWriter, clock: systemClock, quotaStates: async () => [STATE] }),
    ])
    closers.push(() => surface.app.close())
    const list = async (query: string, secret?: string) => {
      const answer = await surface.call(`/usage?${query}`, {}, secret)
      return { status: answer.status, body: (await answer.json()) as never as Page }
    }
    return { ...surface, usage, usageWriter, list }
  }

  interface Page {
    data: { id: string; day: string; model: string; api_key_id: string; requests: number }[]
    has_more: boolean
    quotas: object[]
    last_id: string
    error: { param: string; code: string }
  }

  it('adds up by day, model and key, of the own organization only', async ({ database }) => {
    const { usage, list, newKey } = await openSurface(database)
    await usage.add([
      rowOf({ requestId: 'req_same' }),
      rowOf({ requestId: 'req_same' }),
      rowOf({ modelId: 'other' }),
      rowOf({ createdAt: new Date('2026-03-02T00:00:00Z'), apiKeyId: null }),
      rowOf({ createdAt: new Date('2026-04-01T00:00:00Z') }),
      rowOf({ organizationId: 'org-two' }),
    ])
    const { body } = await list(MARCH)
    expect(body.quotas).toEqual([
      {
        object: 'quota',
        of: 'api_key',
        name: 'cost_per_month',
        limit: 2,
        used: 2.5,
        remaining: 0,
        resets_at: STATE.resetsAtMs / 1000,
      },
    ])
    expect(body.data).toMatchObject([
      { day: '2026-03-01', model: 'other', api_key_id: 'key_1', requests: 1 },
      {
        day: '2026-03-01',
        model: 'toy',
        api_key_id: 'key_1',
        requests: 1,
        prompt_tokens: 4,
        completion_tokens: 6,
        total_tokens: 10,
        cached_tokens: 2,
      },
      { day: '2026-03-02', model: 'toy', api_key_id: null, requests: 1 },
    ])
    const byModel = (await list(`${MARCH}&group_by=model`)).body.data
    expect(byModel).toMatchObject([
      { day: null, model: 'other', requests: 1 },
      { day: null, model: 'toy', requests: 2 },
    ])
    expect((await list(`${MARCH}&model=other`)).body.data).toHaveLength(1)
    expect((await list(`${MARCH}&api_key_id=key_1&group_by=day`)).body.data).toHaveLength(1)
    expect((await list(MARCH, await newKey('org-two'))).body.data).toHaveLength(1)
  })

  it('shows members their own usage, and administrators all of it', async ({ database }) => {
    const usage = openUsageRecord(database.db, usageTables(''))
    const [me, other] = [randomUUID(), randomUUID()]
    await usage.add([
      rowOf({ userId: me, apiKeyId: null }),
      rowOf({ userId: other, apiKeyId: null }),
      rowOf({}),
    ])
    const usageWriter = openWriter(usage)
    const surface = await openV1App(
      database,
      [usagePlugin({ usage, usageWriter, clock: systemClock, quotaStates: async () => [] })],
      {
        verifyAccessToken: async (token) => ({
          userId: me,
          organizations: [{ id: 'org-one', role: token.split('.')[1] as 'admin' | 'member' }],
        }),
      },
    )
    closers.push(() => surface.app.close())
    const requests = async (role: string) => {
      const answer = await surface.call(`/usage?${MARCH}&group_by=model`, {}, `eyJ.${role}.x`)
      return ((await answer.json()) as Page).data.map((line) => line.requests)
    }
    expect(await requests('member')).toEqual([1])
    expect(await requests('admin')).toEqual([3])
    expect(await requests('owner')).toEqual([3])
  })

  it('includes the latest answers, by default of the last 30 days', async ({ database }) => {
    const { usageWriter, list } = await openSurface(database)
    usageWriter.write(rowOf({ createdAt: new Date() }))
    usageWriter.write(rowOf({ createdAt: new Date(Date.now() - 40 * 86_400_000) }))
    expect((await list('')).body.data).toMatchObject([{ requests: 1 }])
  })

  it('is read page by page without loss or repetition', async ({ database }) => {
    const { usage, list } = await openSurface(database)
    const days = Array.from({ length: 7 }, (_, i) => `2026-03-0${i + 1}`)
    await usage.add(days.map((day) => rowOf({ createdAt: new Date(`${day}T01:00:00Z`) })))
    await usage.add(
      days.map((day) => rowOf({ createdAt: new Date(`${day}T01:00:00Z`), apiKeyId: null })),
    )
    const seen: string[] = []
    let after = ''
    for (let pages = 0; pages < 10; pages += 1) {
      const { body } = await list(`${MARCH}&limit=4${after}`)
      seen.push(...body.data.map(({ id }) => id))
      if (!body.has_more) break
      after = `&after=${body.last_id}`
    }
    expect(seen).toHaveLength(14)
    expect(new Set(seen).size).toBe(14)
  })

  it.for([
    ['group_by=week', 'group_by'],
    ['start_time=5&end_time=5', 'start_time'],
    ['start_time=-1', 'start_time'],
    ['after=usage_xx', 'after'],
    ['limit=0', 'limit'],
    ['model=%00', 'model'],
    ['from=1', 'from'],
  ])('refuses %s and names the field', async ([query, param], { database }) => {
    const { list } = await openSurface(database)
    const { status, body } = await list(query as string)
    expect(status).toBe(400)
    expect(body.error.param).toBe(param)
  })

  it('needs the scope of the same name', async ({ database }) => {
    const { list, newKey } = await openSurface(database)
    expect((await list('', await newKey('org-one', ['chat']))).status).toBe(403)
    expect((await list('', await newKey('org-one', ['usage']))).status).toBe(200)
  })
})
