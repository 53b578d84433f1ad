import { randomUUID } from 'node:crypto'

import { describe, expect } from 'vitest'

import { openBatches } from '#api/batches/batch-store.ts'
import { openBatchLines } from '#api/batches/line-store.ts'
import { JobStore } from '#api/jobs/job-store.ts'
import { AnswerStore } from '#api/stored/answer-store.ts'
import { ConversationStore } from '#api/stored/conversation-store.ts'
import type { Database } from '#shared/db/client.ts'
import { batchTables } from '#shared/db/schema/batches.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { it } from '#test/support/services.ts'

const ORGANIZATION = 'org-one'
const BYTES_MAX = 64 * 1024
const FULL = { code: 'storage_limit_exceeded' }

// Random text, which does not become shorter.
const textOf = (bytes: number): string =>
  Array.from({ length: Math.ceil(bytes / 36) }, () => randomUUID()).join('')

async function openStores({ db, pool }: Database) {
  await pool.query("insert into organizations (id, name) values ($1, 'x')", [ORGANIZATION])
  const cipher = openContentCipher(['a key of the tests'])
  const options = { db, cipher, retentionDays: 1, storedBytesMax: BYTES_MAX }
  const tables = jobTables('')
  return {
    answers: new AnswerStore({ ...options, tables }),
    conversations: new ConversationStore({ ...options, tables }),
    jobs: new JobStore({ ...options, tables, announce: async () => {} }),
    batches: openBatches(db, batchTables(''), options),
    lines: openBatchLines(db, batchTables(''), cipher),
  }
}

type Stores = Awaited<ReturnType<typeof openStores>>

/** The counted bytes, and those of the rows. */
async function bytesOf({ pool }: Database): Promise<{ counted: number; actual: number }> {
  const { rows } = await pool.query(`
    select (select coalesce(sum(bytes), 0) from stored_bytes) as counted, (
      select coalesce(sum(bytes), 0) from (
        select row_bytes(metadata, octet_length(content)) as bytes from stored_answers
        union all select row_bytes(metadata, 0) from conversations
        union all select row_bytes(null, octet_length(content)) from conversation_items
        union all select row_bytes(metadata, octet_length(result)) from jobs
          where ended_at is not null
        union all select row_bytes(metadata, 0) from batches
        union all select row_bytes(null, octet_length(body) + coalesce(octet_length(answer), 0))
          from batch_lines
      ) contents) as actual`)
  return { counted: Number(rows[0].counted), actual: Number(rows[0].actual) }
}

const answerOf = (id: string, text: string) => ({
  id,
  organizationId: ORGANIZATION,
  userId: null,
  object: 'response' as const,
  model: 'x',
  previousId: null,
  conversationId: null,
  jobId: null,
  metadata: null,
  input: [{ id: 'msg', text }],
  answer: { id },
  createdAtMs: Date.now(),
})

const begin = ({ conversations }: Stores, id: string, text: string) =>
  conversations.create(
    { id, organizationId: ORGANIZATION, userId: null, metadata: null, createdAt: new Date() },
    [{ id: 'msg_0', text }],
  )

function createJob({ jobs }: Stores, id: string) {
  const createdAt = new Date(Date.now() - 1000)
  const job = {
    id,
    organizationId: ORGANIZATION,
    endpoint: '/v1/completions',
    priority: 1,
    contentType: 'application/json',
    request: Buffer.from('x'),
    createdAt,
    notBefore: createdAt,
    expiresAt: new Date(Date.now() + 3_600_000),
  }
  return jobs.create(job, { openMax: 2000, openBytesMax: 2 ** 40, onlyStored: false })
}

/** Claims and ends the one job that is due; returns it as it is then. */
async function endJob({ jobs }: Stores, result: Buffer) {
  const lease = randomUUID()
  const [job] = await jobs.claim(lease, 60, { limit: 8, perOrganizationMax: 8, inFlight: {} })
  if (job === undefined) throw new Error('no job was claimed')
  await jobs.finish(job.id, lease, { state: 'completed', status: 200, result })
  return jobs.find(ORGANIZATION, job.id)
}

async function* linesOf(body: string) {
  yield [1, 2].map((line) => ({ line, customId: `r${line}`, body }))
}

/** A batch of two lines, one of which is answered. */
async function runBatch({ batches, lines }: Stores): Promise<{ close(): Promise<boolean> }> {
  const lease = randomUUID()
  await batches.create(
    {
      id: 'batch_one',
      organizationId: ORGANIZATION,
      endpoint: '/v1/completions',
      inputFileId: 'file-x',
      inputObjectKey: 'files/x',
      modelIds: null,
      metadata: null,
      apiKeyId: undefined,
      userId: undefined,
      outputRetentionSeconds: null,
      completionWindow: '24h',
      windowSeconds: 60,
    },
    3,
  )
  await batches.lease(lease, 60, { busy: [], served: [] })
  await batches.begin('batch_one', lease, linesOf(textOf(2000)))
  const [line] = await lines.claim(lease, 60, { limit: 1, perOrganizationMax: 8, inFlight: {} })
  if (line === undefined) throw new Error('no line was claimed')
  await lines.finish(line, lease, { requestId: 'r', statusCode: 200, body: textOf(3000) })
  return {
    async close() {
      await batches.cancel(ORGANIZATION, 'batch_one')
      await lines.release(line, lease, { delaySeconds: 0, isCounted: false })
      await batches.lease(lease, 60, { busy: [], served: [] })
      const end = { status: 'cancelled', outputFileId: null, errorFileId: null } as const
      return lines.close('batch_one', lease, end)
    },
  }
}

describe('the stored bytes of an organization', () => {
  it('are those of its contents, however these come and go', async ({ database }) => {
    const stores = await openStores(database)
    const { answers, conversations, jobs } = stores
    const check = async (): Promise<number> => {
      const { counted, actual } = await bytesOf(database)
      expect(counted).toBe(actual)
      return counted
    }
    await answers.add(answerOf('resp_1', textOf(1000)))
    await answers.replace(answerOf('resp_1', textOf(5000)))
    await begin(stores, 'conv_1', textOf(1000))
    await begin(stores, 'conv_2', textOf(2000))
    const createdAtMs = Date.now()
    const item = { id: 'msg_1', text: textOf(700) }
    const place = { organizationId: ORGANIZATION, conversationId: 'conv_1', createdAtMs }
    await conversations.append({ ...place, items: [item] })
    await conversations.append({ ...place, items: [item] })
    await conversations.setMetadata(ORGANIZATION, 'conv_1', { note: 'x'.repeat(500) })
    await createJob(stores, 'job_1')
    await endJob(stores, Buffer.from(textOf(4000)))
    const batch = await runBatch(stores)
    expect(await check()).toBeGreaterThan(15_000)
    await conversations.removeItem('conv_1', 'msg_0')
    await check()
    expect(await batch.close()).toBe(true)
    await check()
    await database.pool.query("update conversations set delete_at = now() where id = 'conv_2'")
    await database.pool.query('update jobs set delete_at = now()')
    await Promise.all([conversations.sweep(), jobs.sweep()])
    await check()
    await conversations.remove(ORGANIZATION, 'conv_1')
    await answers.remove(ORGANIZATION, 'response', 'resp_1')
    await database.pool.query('delete from batches')
    expect(await check()).toBe(0)
  })

  it('have a bound, beyond which nothing more is stored until something is deleted', async ({
    database,
  }) => {
    const stores = await openStores(database)
    const { answers, conversations, batches } = stores
    const large = textOf(BYTES_MAX)
    await createJob(stores, 'job_early')
    // Deflated, random hexadecimal digits have a little more than half of their bytes.
    await begin(stores, 'conv_1', textOf(BYTES_MAX * 1.5))
    const place = { organizationId: ORGANIZATION, conversationId: 'conv_1', createdAtMs: 0 }
    const added = { ...place, items: [{ id: 'msg_1', text: large }] }
    await expect(conversations.append(added)).rejects.toMatchObject(FULL)
    await expect(begin(stores, 'conv_2', large)).rejects.toMatchObject(FULL)
    expect(await conversations.find(ORGANIZATION, 'conv_2')).toBeUndefined()
    for (let id = 3; id < 10; id += 1) {
      const head = { organizationId: ORGANIZATION, userId: null, createdAt: new Date() }
      const metadata = { note: 'x'.repeat(512) }
      await conversations
        .create({ ...head, id: `conv_${id}`, metadata }, [])
        .catch((error: unknown) => expect(error).toMatchObject(FULL))
    }
    expect((await bytesOf(database)).counted).toBeLessThanOrEqual(BYTES_MAX)
    await expect(answers.add(answerOf('resp_1', large))).rejects.toMatchObject(FULL)
    // The result of a job that was created before does not fit any more.
    const failed = await endJob(stores, Buffer.from(large))
    expect(failed).toMatchObject({ state: 'failed', error: FULL })
    expect(await batches.hasRoom(ORGANIZATION, BYTES_MAX)).toBe(false)
    await database.pool.query('update stored_bytes set bytes = $1', [BYTES_MAX + 1])
    expect(await createJob(stores, 'job_late')).toBe('no room')
    await database.pool.query('update stored_bytes set bytes = 0')
    expect(await createJob(stores, 'job_later')).toMatchObject({ id: 'job_later' })
  })
})
