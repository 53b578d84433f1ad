import { describe, expect } from 'vitest'

import { type ResumeServices, resumeTuningJob } from '#api/fine-tuning/changes.ts'
import { TuningStore } from '#api/fine-tuning/tuning-store.ts'
import { systemClock } from '#shared/clock.ts'
import { tuningTables } from '#shared/db/schema/fine-tuning.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { failure } from '#shared/errors.ts'
import { it } from '#test/support/services.ts'

const JOB = {
  id: 'ftjob-one',
  organizationId: 'org-one',
  model: 'tiny-chat',
  suffix: '',
  seed: 1,
  apiKeyId: null,
  userId: null,
  modelIds: null,
  metadata: null,
  trainingFile: 'file-one',
  trainingObjectKey: 'files/one',
  validationFile: null,
  validationObjectKey: null,
  hyperparameters: {
    ...({ nEpochs: 'auto', batchSize: 'auto', learningRateMultiplier: 'auto' } as const),
  },
}

describe('a paused fine-tuning job', () => {
  it('stays paused when its run cannot be started', async ({ database: { db } }) => {
    const organization = { id: 'org-one', name: 'one' }
    await db.insert(organizationTables('').organizations).values(organization)
    const tuning = new TuningStore({ db, tables: tuningTables(''), announce: async () => {} })
    await tuning.create(JOB, { openMax: 1, tunedMax: 1 })
    const event = { name: 'paused:1', message: 'paused' }
    const job = await tuning.move(JOB.id, { from: ['validating_files'], to: 'paused', event })
    const services = {
      tuning,
      clock: systemClock,
      limits: { hoursMax: 1 },
      jobs: { find: async () => undefined },
      background: {
        create: async () => {
          throw failure.rateLimited('too many jobs', { retryAfterSeconds: 60 })
        },
      },
    } as unknown as ResumeServices
    if (job === undefined) throw new Error('the job was not paused')
    const resumed = resumeTuningJob(job, services, job)
    await expect(resumed).rejects.toThrow('too many jobs')
    expect(await tuning.find('org-one', JOB.id)).toMatchObject({ status: 'paused' })
  })
})
