import { describe, expect, it } from 'vitest'

import { openBatches } from '#api/batches/batch-store.ts'
import { batchTables } from '#shared/db/schema/batches.ts'
import { failure } from '#shared/errors.ts'

import { createBatch, ENDPOINT, ids, line, reach, readLines } from './batch-client.ts'
import { STORAGE_BYTES_MAX } from './batch-service.ts'
import { useBatches } from './batch-suite.ts'

const suite = useBatches()

const query = (text: string, values: readonly unknown[] = []) =>
  suite.service.database.pool.query(text, [...values])

const newBatch = (id: string, organizationId: string) => ({
  id,
  organizationId,
  endpoint: ENDPOINT,
  inputFileId: 'file-x',
  inputObjectKey: 'files/x',
  modelIds: null,
  apiKeyId: undefined,
  userId: undefined,
  metadata: null,
  outputRetentionSeconds: null,
  completionWindow: '24h',
  windowSeconds: 60,
})

describe('the allowance of an organization', () => {
  it('for unfinished batches holds for batches that are created at once', async () => {
    await query("insert into organizations (id, name) values ('org-eager', 'Eager')")
    const batches = openBatches(suite.service.database.db, batchTables(''))
    const made = await Promise.all(
      ids(12).map((id) => batches.create(newBatch(`batch_eager${id}`, 'org-eager'), 3)),
    )
    expect(made.filter((batch) => batch !== undefined)).toHaveLength(3)
    await query("delete from organizations where id = 'org-eager'")
  })

  it('for storage admits no batch that would add to it once it is used up', async () => {
    await createBatch(suite.client, [line('r0')])
    await query('update organization_storage set used_bytes = used_bytes + $1', [STORAGE_BYTES_MAX])
    const [file] = (await suite.client.files.list({ purpose: 'batch' })).data
    const refused = suite.client.batches.create({
      input_file_id: file?.id ?? '',
      endpoint: ENDPOINT,
      completion_window: '24h',
    })
    await expect(refused).rejects.toMatchObject({ status: 400, code: 'storage_limit_exceeded' })
    await query('update organization_storage set used_bytes = used_bytes - $1', [STORAGE_BYTES_MAX])
  })

  it('for tokens answers the lines that exceed it, and does not retry them', async () => {
    let tries = 0
    suite.service.execute = async ({ body }) => {
      if ((body as { text: string }).text === 'over') tries += 1
      throw failure.rateLimited('You exceeded your current quota.', {
        openaiType: 'insufficient_quota',
        code: 'insufficient_quota',
        shouldRetry: false,
      })
    }
    const { id } = await createBatch(suite.client, [line('over')])
    suite.start()
    const done = await reach(suite.client, id, 'completed')
    expect(await readLines(suite.client, done.error_file_id)).toMatchObject([
      { response: { status_code: 429, body: { error: { code: 'insufficient_quota' } } } },
    ])
    expect(tries).toBe(1)
  })
})

it('the batches of a deleted organization end without being run', async () => {
  let runs = 0
  suite.service.execute = async () => {
    runs += 1
    return {}
  }
  const { id } = await createBatch(
    suite.client,
    ids(3).map((name) => line(name)),
  )
  await query('update organizations set deleted_at = now()')
  suite.start()
  const status = async () =>
    (await query('select status from batches where id = $1', [id])).rows[0].status
  await expect.poll(status).toBe('cancelled')
  expect(runs).toBe(0)
  await query('update organizations set deleted_at = null')
})
