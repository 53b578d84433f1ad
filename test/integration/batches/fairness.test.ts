import { expect, it } from 'vitest'

import { createBatch, ids, line, reach } from './batch-client.ts'
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
  await expect.poll(() => started, { timeout: 10_000 }).toContain('other-0')
  end('other-0')
  await expect.poll(() => started, { timeout: 10_000 }).toContain('other-1')
  end('other-1')
  await expect.poll(() => statusOf(other), { timeout: 10_000 }).toBe('completed')
  expect(started.filter((name) => name.startsWith('slow'))).toHaveLength(32)
  await suite.client.batches.cancel(slow)
})

it('a slot that becomes free goes to the organization with the fewest lines in flight', async () => {
  const { started, end } = holdLines()
  const batches = [
    ...[
      await batchOf(named('a', 30)),
      await batchOf(named('b', 30)),
      await batchOf(named('c', 30)),
    ],
  ]
  suite.start()
  await expect.poll(() => started.length, { timeout: 10_000 }).toBe(32)
  const first = [...started]
  const other = await batchOf(named('other', 30), OTHER)
  const ofOther = () => started.filter((name) => name.startsWith('other')).length
  await expect.poll(ofOther, { timeout: 10_000 }).toBe(1)
  for (const name of first.slice(0, 8)) end(name)
  await expect.poll(() => started.length, { timeout: 10_000 }).toBe(40)
  expect(ofOther()).toBe(8)
  for (const id of [...batches, other]) {
    await suite.service.database.pool.query(
      "update batches set status = 'cancelled' where id = $1",
      [id],
    )
  }
})
