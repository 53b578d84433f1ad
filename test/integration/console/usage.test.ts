import { rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { type ConsoleClient, type ConsoleStack, openConsole } from './console-stack.ts'

const CATALOGUE = join(tmpdir(), `console-usage-${process.pid}.json`)
const ORGANIZATION = '=HYPERLINK("x"), Ltd'
let stack: ConsoleStack
let viewer: ConsoleClient

beforeAll(async () => {
  await writeFile(
    CATALOGUE,
    JSON.stringify({
      models: [
        { id: 'priced', kind: 'completion', source: 'x', price: { input: 1, output: 10 } },
        { id: 'free', kind: 'completion', source: 'y' },
      ],
    }),
  )
  stack = await openConsole({ MILLRACE_CATALOGUE: CATALOGUE })
  viewer = await stack.signIn('viewer')
  const { pool } = stack.services.database
  await pool.query('insert into organizations (id, name) values ($1, $2)', ['org-a', ORGANIZATION])
  const row = {
    organizationId: 'org-a',
    userId: null,
    requestId: null,
    kind: 'completion',
  } as const
  const tokens = { promptTokens: 1_000_000, completionTokens: 200_000, cachedTokens: 5 }
  const at = (daysAgo: number) => new Date(Date.now() - daysAgo * 86_400_000)
  await stack.services.usage.add([
    {
      ...row,
      ...tokens,
      jobId: '1',
      apiKeyId: 'key_1',
      modelId: 'priced',
      outcome: 'finished',
      createdAt: at(0),
    },
    {
      ...row,
      ...tokens,
      jobId: '2',
      apiKeyId: 'key_2',
      modelId: 'priced',
      outcome: 'finished',
      createdAt: at(1),
    },
    {
      ...row,
      ...tokens,
      jobId: '3',
      apiKeyId: null,
      modelId: 'free',
      outcome: 'failed',
      createdAt: at(40),
    },
  ])
})
afterAll(async () => {
  await stack?.close()
  await rm(CATALOGUE, { force: true })
})

describe('usage', () => {
  it('is summed by organization, key, model and day, with its cost', async () => {
    const sum = async (query: string) => (await viewer.read(`usage?${query}`)).rows
    expect(await sum('group_by=organization')).toEqual([
      {
        organization_id: 'org-a',
        organization: ORGANIZATION,
        requests: 2,
        cached_tokens: 10,
        prompt_tokens: 2_000_000,
        completion_tokens: 400_000,
        cost: 6,
      },
    ])
    expect(await sum('group_by=key')).toMatchObject([
      { key_id: 'key_1', key: null, cost: 3 },
      { key_id: 'key_2', cost: 3 },
    ])
    expect(await sum('group_by=model&days=90')).toMatchObject([
      { model: 'free', cost: null },
      { model: 'priced', cost: 6 },
    ])
    expect(await sum('group_by=day,model&days=90')).toHaveLength(3)
    // A sum with a model without a price would be too low.
    expect(await sum('group_by=organization&days=90')).toMatchObject([{ requests: 3, cost: null }])
    expect(await sum('group_by=organization&organization=org-b')).toEqual([])
  })

  it('is exported as CSV that a spreadsheet does not evaluate', async () => {
    const { text } = await viewer.attempt('GET', 'usage.csv?group_by=organization')
    expect(text).toBe(
      'organization_id,organization,requests,prompt_tokens,completion_tokens,cached_tokens,cost\r\n' +
        `org-a,"'=HYPERLINK(""x""), Ltd",2,2000000,400000,10,6\r\n`,
    )
  })
})
