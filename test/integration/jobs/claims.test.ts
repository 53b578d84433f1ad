import { randomUUID } from 'node:crypto'

import { expect } from 'vitest'

import { JobStore } from '#api/jobs/job-store.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

const MEBIBYTE = 1024 * 1024

it('claims no jobs of busy organizations, and large requests without their content', async ({
  database: { db },
}) => {
  const ids = ['org-one', 'org-two']
  const rows = ids.map((id) => ({ id, name: id }))
  await db.insert(organizationTables('').organizations).values(rows)
  const options = { db, tables: jobTables(''), retentionDays: 30, announce: async () => {} }
  const store = new JobStore(options)
  const requests = [Buffer.alloc(2 * MEBIBYTE, 'a'), Buffer.from('small')]
  const createdAt = new Date(Date.now() - 1000)
  for (const [index, organizationId] of ids.entries()) {
    const job = {
      ...{ organizationId, id: `job-of-${organizationId}`, endpoint: '/v1/completions' },
      ...{ contentType: 'application/json', request: requests[index] as Buffer, priority: 1 },
      ...{ createdAt, notBefore: createdAt, expiresAt: new Date(Date.now() + 3_600_000) },
    }
    await store.create(job, { openMax: 2000, onlyStored: false })
  }
  const lease = randomUUID()
  const [other, ...more] = await store.claim(lease, 60, {
    ...{ limit: 8, perOrganizationMax: 1, inFlight: { 'org-one': 1 } },
  })
  expect([other?.organizationId, other?.request?.toString(), more]).toEqual([
    ...['org-two', 'small', []],
  ])
  const [large] = await store.claim(lease, 60, { limit: 8, perOrganizationMax: 8, inFlight: {} })
  if (large === undefined) throw new Error('the job was not claimed')
  expect(large).toMatchObject({ organizationId: 'org-one', request: null })
  expect((await store.readRequest(large)).equals(requests[0] as Buffer)).toBe(true)
})
