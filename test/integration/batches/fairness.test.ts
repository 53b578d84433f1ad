import { Readable } from 'node:stream'

import { expect, it } from 'vitest'

import { openBatches } from '#api/batches/batch-store.ts'
import { batchTables } from '#shared/db/schema/batches.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { createBatch, ids, line, reach, readLines } from './batch-client.ts'
import { STORED_BYTES_MAX } from './batch-service.ts'
import { useBatches } from './batch-suite.ts'

const suite = useBatches()
const OTHER = 'org-other'

/** Creates a batch, of another organization if one is named. */
async function batchOf(names: readonly string[], organizationId?: string): Promise<string> {
  const { pool } = suite.service.database
  const { id } = await createBatch(
    suite.client,
    names.map((name) => line(name)),
  )
  if (organizationId !== undefined) {
    await pool.query(
      'insert into organizations (id, name) values ($1, $1) on conflict do nothing',
      [organizationId],
    )
    await pool.query('update batches set organization_id = $2 where id = $1', [id, organizationId])
  }
  return id
}

/** Answers each line when the test ends it; the others stay in flight. */
function holdLines() {
  const ends = new Map<string, () => void>()
  const started: string[] = []
  suite.service.execute = ({ body, signal }) =>
    new Promise((resolve, reject) => {
      const { text } = body as { text: string }
      started.push(text)
      ends.set(text, () => resolve({}))
      signal.addEventListener('abort', () => reject(new Error('stopped')))
    })
  return { started, end: (name: string) => ends.get(name)?.() }
}

const named = (prefix: string, count: number) => ids(count).map((id) => `${prefix}-${id}`)
const statusOf = async (id: string) =>
  (
    await suite.service.database.pool.query<{ status: string }>(
      'select status from batches where id = $1',
      [id],
    )
  ).rows[0]?.status

it('a line of another organization runs beside slow ones that fill their slots', async () => {
  const { started, end } = holdLines()
  const slow = await batchOf(named('slow', 40))
  suite.start()
  await reach(suite.client, slow, 'in_progress')
  await expect.poll(() => started.length).toBe(32)
  const other = await batchOf(['other-0', 'other-1'], OTHER)
  await expect.poll(() => started).toContain('other-0')
  end('other-0')
  await expect.poll(() => started).toContain('other-1')
  end('other-1')
  await expect.poll(() => statusOf(other)).toBe('completed')
  expect(started.filter((name) => name.startsWith('slow'))).toHaveLength(32)
  await suite.client.batches.cancel(slow)
})

it('a slot that becomes free goes to the organization with the fewest lines in flight', async () => {
  const { started, end } = holdLines()
  const batches = [
    await batchOf(named('a', 30)),
    await batchOf(named('b', 30)),
    await batchOf(named('c', 30)),
  ]
  suite.start()
  await expect.poll(() => started.length).toBe(32)
  const first = [...started]
  const other = await batchOf(named('other', 30), OTHER)
  const ofOther = () => started.filter((name) => name.startsWith('other')).length
  await expect.poll(ofOther).toBe(1)
  for (const name of first.slice(0, 8)) end(name)
  await expect.poll(() => started.length).toBe(40)
  expect(ofOther()).toBe(8)
  for (const id of [...batches, other]) {
    await suite.service.database.pool.query(
      "update batches set status = 'cancelled' where id = $1",
      [id],
    )
  }
})

/** Files whose content arrives when the test lets it. */
function holdFiles() {
  const { store } = suite.service
  const opened: string[] = []
  const releases = new Map<string, () => void>()
  const held: ObjectStore = {
    ...store,
    put: (...of) => store.put(...of),
    delete: (key) => store.delete(key),
    async get(key) {
      const found = await store.get(key)
      async function* late() {
        await new Promise<void>((resolve) => {
          releases.set(key, resolve)
          opened.push(key)
        })
        yield* found.body
      }
      return { ...found, body: Readable.from(late()) }
    },
  }
  return { held, opened, release: (key: string) => releases.get(key)?.() }
}

it('the validation of slow files of one organization delays no file of another', async () => {
  const { pool } = suite.service.database
  const { held, opened, release } = holdFiles()
  const slow = [await batchOf(['s1']), await batchOf(['s2']), await batchOf(['s3'])]
  const other = await batchOf(['o1'], OTHER)
  const third = await batchOf(['t1'], 'org-third')
  const keys = await pool.query('select id, input_object_key as key from batches')
  const keyOf = (id: string): string => keys.rows.find((row) => row.id === id)?.key
  const nameOf = (key: string) => keys.rows.find((row) => row.key === key)?.id
  suite.drivers.push(suite.service.startDriver({ store: held }))
  // Two files are read at a time; which of them is opened first is not said.
  const begun = () => new Set(opened.map(nameOf))
  await expect.poll(begun).toEqual(new Set([slow[0], other]))
  release(keyOf(other))
  await expect.poll(begun).toEqual(new Set([slow[0], other, third]))
  release(keyOf(third))
  release(keyOf(slow[0] ?? ''))
  for (const id of [...slow, other, third]) {
    await pool.query("update batches set status = 'cancelled' where id = $1", [id])
  }
  for (const key of opened) release(key)
})

it('a batch whose lines do not fit into the storage of its organization fails', async () => {
  const { pool } = suite.service.database
  const { id } = await createBatch(suite.client, [line('fits'), line('too')])
  await pool.query(
    `insert into stored_bytes (organization_id, part, bytes)
     select organization_id, 100, $2 from batches where id = $1`,
    [id, STORED_BYTES_MAX],
  )
  suite.start()
  const failed = await reach(suite.client, id, 'failed')
  expect(failed.errors?.data).toMatchObject([{ code: 'storage_limit_exceeded' }])
  await expect(createBatch(suite.client, [line('more')])).rejects.toMatchObject({
    status: 400,
    code: 'storage_limit_exceeded',
  })
  await pool.query('delete from stored_bytes where part = 100')
})

it('an answer that does not fit is replaced by the reason', async () => {
  suite.service.execute = async () => ({ text: 'x'.repeat(STORED_BYTES_MAX) })
  const { id } = await createBatch(suite.client, [line('large')])
  suite.start()
  const done = await reach(suite.client, id, 'completed')
  expect(await readLines(suite.client, done.error_file_id)).toMatchObject([
    { response: { status_code: 400, body: { error: { code: 'storage_limit_exceeded' } } } },
  ])
})

it('an answer is written although its look at the storage failed once', async () => {
  const batches = openBatches(suite.service.database.db, batchTables(''))
  let executions = 0
  let isAway = false
  suite.service.execute = async () => {
    executions += 1
    isAway = true
    return {}
  }
  const hasRoom: typeof batches.hasRoom = (...of) => {
    const isNow = isAway
    isAway = false
    return isNow ? Promise.reject(new Error('the database is away')) : batches.hasRoom(...of)
  }
  const { id } = await createBatch(suite.client, [line('once')])
  suite.drivers.push(suite.service.startDriver({ batches: { ...batches, hasRoom } }))
  await reach(suite.client, id, 'completed')
  expect(executions).toBe(1)
})
