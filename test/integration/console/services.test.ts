import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import { afterAll, beforeAll, expect, it } from 'vitest'

import type { Overview } from '#api/console/overview.ts'
import { startOwnTiers } from '#test/support/own-tiers.ts'
import { eventually } from '#test/support/queue.ts'
import { startS3 } from '#test/support/s3.ts'
import { ONE_MODEL } from '#test/support/tiers.ts'

const TOKEN = 'the-admin-token-of-the-tests'

let s3: Awaited<ReturnType<typeof startS3>>
let tiers: Awaited<ReturnType<typeof startOwnTiers>>

beforeAll(async () => {
  s3 = await startS3()
  tiers = await startOwnTiers({
    ...ONE_MODEL,
    MILLRACE_ADMIN_TOKEN: TOKEN,
    S3_ENDPOINT: s3.config.endpoint,
    S3_BUCKET: s3.config.bucket,
    S3_ACCESS_KEY_ID: 'UNKNOWN',
    S3_SECRET_ACCESS_KEY: 'wrong',
  })
  await tiers.startWorker()
}, 120_000)
afterAll(async () => {
  await tiers?.stop()
  await s3?.stop()
})

it('names the wrong setting of the API and of a worker, on the overview and in their logs', {
  timeout: 60_000,
}, async () => {
  const fault = {
    name: 'storage',
    isOk: false,
    reason: expect.stringContaining('S3_ACCESS_KEY_ID'),
  }
  let overview: Overview | undefined
  await eventually(async () => {
    const headers = { authorization: `Bearer ${TOKEN}` }
    const answer = await fetch(`${tiers.url}/admin/overview.json`, { headers })
    overview = (await answer.json()) as Overview
    return overview.workers[0]?.failing?.length === 1
  })
  expect(overview?.dependencies).toContainEqual(expect.objectContaining(fault))
  expect(overview?.workers[0]?.failing).toEqual([expect.objectContaining(fault)])
  for (const tier of ['api', 'worker']) {
    const lines = (await readFile(join(tiers.folder, `${tier}.log`), 'utf8')).split('\n')
    const named = lines.filter((line) => line.includes('storage fails'))
    expect(named).toHaveLength(1)
    expect(named[0]).toContain('check S3_ACCESS_KEY_ID')
  }
})
