import { randomUUID } from 'node:crypto'

import { describe, expect, it } from 'vitest'

import { createBatch, ids, line, reach, readLines } from './batch-client.ts'
import { useBatches } from './batch-suite.ts'

const suite = useBatches()

const query = async (text: string, values: readonly unknown[] = []) =>
  (await suite.service.database.pool.query(text, [...values])).rows

/** A user who is banned, or is not. */
async function newUser(bannedUntil: string | null): Promise<string> {
  const id = randomUUID()
  await query(
    `insert into users (id, created_at, updated_at, banned_until) values ($1, now(), now(), $2)`,
    [id, bannedUntil],
  )
  return id
}

const setOwner = (userId: string | null) =>
  query('update organizations set personal_user_id = $1', [userId])
const stateOf = async (id: string) =>
  (await query('select status, errors from batches where id = $1', [id]))[0]
const LINES = ids(80).map((name) => line(name))

describe('a batch of a user who is banned', () => {
  it('stops, begins no further line, and states the reason', async () => {
    const user = await newUser(null)
    await setOwner(user)
    let runs = 0
    suite.service.execute = ({ signal }) => {
      runs += 1
      // The first line is answered; all others take for ever.
      if (runs === 1) return Promise.resolve({ echo: 'first' })
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('stopped')))
      })
    }
    const { id } = await createBatch(suite.client, LINES)
    suite.start()
    // The first answer is stored, and further lines run.
    await expect
      .poll(async () => (await suite.client.batches.retrieve(id)).request_counts?.completed)
      .toBe(1)
    await expect.poll(() => runs).toBeGreaterThan(1)
    await query("update users set banned_until = now() + interval '1 hour' where id = $1", [user])
    await expect.poll(async () => (await stateOf(id))?.status).toBe('cancelled')
    expect(runs).toBeLessThan(LINES.length)
    // An unbanned user reads the state of the batch.
    await query('update users set banned_until = null where id = $1', [user])
    const ended = await reach(suite.client, id, 'cancelled')
    expect(ended.errors?.data).toMatchObject([{ code: 'user_banned' }])
    expect(ended.request_counts).toEqual({ total: 80, completed: 1, failed: 79 })
    const unrun = await readLines(suite.client, ended.error_file_id)
    expect(unrun).toHaveLength(79)
    expect(unrun[0]).toMatchObject({ response: null, error: { code: 'batch_cancelled' } })
    await setOwner(null)
  })

  it('is not started even if they created it for a shared organization', async () => {
    const banned = await newUser('2999-01-01')
    const { id } = await createBatch(suite.client, LINES)
    await query('update batches set user_id = $2 where id = $1', [id, banned])
    let runs = 0
    suite.service.execute = async () => {
      runs += 1
      return {}
    }
    suite.start()
    const ended = await reach(suite.client, id, 'cancelled')
    expect(runs).toBe(0)
    expect(ended.errors?.data).toMatchObject([{ code: 'user_banned' }])
  })

  it('runs when the ban is over, and for others in the same organization', async () => {
    await setOwner(await newUser('2000-01-01'))
    const [mine, theirs] = [await newUser('2000-01-01'), await newUser('2999-01-01')]
    const { id } = await createBatch(suite.client, [line('a')])
    await query('update batches set user_id = $2 where id = $1', [id, mine])
    const other = await createBatch(suite.client, [line('b')])
    await query('update batches set user_id = $2 where id = $1', [other.id, theirs])
    suite.start()
    expect((await reach(suite.client, id, 'completed')).errors ?? null).toBeNull()
    await reach(suite.client, other.id, 'cancelled')
    await setOwner(null)
  })
})
