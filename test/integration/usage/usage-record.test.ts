import { describe, expect } from 'vitest'

import { openUsageRecord } from '#api/usage/usage-store.ts'
import { type UsageRow, usageTables } from '#shared/db/schema/usage.ts'
import { it } from '#test/support/services.ts'

import { openWriter, rowOf } from './usage-rows.ts'

describe('the use of a job', () => {
  it('stands in the record once, however often it is reported', async ({ database }) => {
    const usage = openUsageRecord(database.db, usageTables(''))
    const row = rowOf({ jobId: 'job_1' })
    await Promise.all(Array.from({ length: 50 }, () => usage.add([row])))
    expect(await database.db.select().from(usageTables('').usage)).toHaveLength(1)
  })

  it.for([
    ['finished', 'finished'],
    ['abandoned', 'finished'],
    ['finished', 'abandoned'],
  ] as const)(
    'that is run again for one answer is one row (%s, then %s)',
    async (outcomes, { database }) => {
      const [first, second] = outcomes.map((outcome, at) =>
        rowOf({ jobId: 'batch_1:7', outcome, completionTokens: outcome === 'finished' ? 9 : at }),
      ) as [UsageRow, UsageRow]
      const usage = openUsageRecord(database.db, usageTables(''))
      const rows = () => database.db.select().from(usageTables('').usage)
      const wanted = [{ outcome: 'finished', completionTokens: 9 }]
      await usage.add([first, second])
      expect(await rows()).toMatchObject(wanted)
      await database.db.delete(usageTables('').usage)
      await usage.add([first])
      await usage.add([second])
      expect(await rows()).toMatchObject(wanted)
    },
  )

  it('is deleted when it is older than the operator keeps it', async ({ database }) => {
    const usage = openUsageRecord(database.db, usageTables(''))
    const [old, last] = [new Date('2026-01-31T23:59:59Z'), new Date('2026-02-01T00:00:00Z')]
    const rows = Array.from({ length: 3 }, () => rowOf({ createdAt: old }))
    await usage.add([...rows, rowOf({ jobId: 'job_kept', createdAt: last })])
    await usage.deleteBefore(last)
    const kept = await database.db.select().from(usageTables('').usage)
    expect(kept.map(({ jobId }) => jobId)).toEqual(['job_kept'])
  })

  it('waits in memory while the database is away', async ({ database }) => {
    const usage = openUsageRecord(database.db, usageTables(''))
    let isAway = true
    const writer = openWriter({
      async add(rows) {
        if (isAway) throw new Error('ECONNREFUSED')
        await usage.add(rows)
      },
    })
    writer.write(rowOf({ jobId: 'job_1' }))
    writer.write(rowOf({ jobId: 'job_2' }))
    await writer.flush(20)
    isAway = false
    await writer.close()
    expect(await database.db.select().from(usageTables('').usage)).toHaveLength(2)
  })
})
