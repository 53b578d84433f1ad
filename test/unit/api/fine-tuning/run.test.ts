import { EventEmitter } from 'node:events'

import { expect, it } from 'vitest'

import { type RunServices, runTuningJob } from '#api/fine-tuning/run.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { systemClock } from '#shared/clock.ts'
import type { TuningJobRow } from '#shared/db/schema/fine-tuning.ts'
import { failure } from '#shared/errors.ts'

/** Runs a validated job whose training ends without replies; returns what happened in order. */
async function runQueued(leaveSlot: () => void = () => {}) {
  const steps: string[] = []
  const request = {
    context: {
      stored: {
        id: 'ftjob-1-1',
        createdAtMs: 0,
        signal: new AbortController().signal,
        leaveSlot() {
          steps.push('leaveSlot')
          leaveSlot()
        },
      },
      caller: { organizationId: 'org-one', modelIds: null, scopes: null },
    },
    raw: { complete: true },
  }
  const services = {
    catalogue: { find: (id: string) => ({ id }) },
    tuning: { fail: async () => steps.push('fail') },
    submitter: {
      submit() {
        steps.push('submit')
        return (async function* () {})()
      },
    },
    clock: systemClock,
    limits: { epochsMax: 1, hoursMax: 1 },
  }
  const job = {
    id: 'ftjob-1',
    run: 1,
    organizationId: 'org-one',
    model: 'tiny-chat',
    status: 'queued',
    suffix: '',
    seed: 1,
    validationObjectKey: null,
    hyperparameters: { nEpochs: 'auto', batchSize: 'auto', learningRateMultiplier: 'auto' },
  }
  const http = { request, reply: { raw: new EventEmitter() } } as unknown as Http
  const error = await runTuningJob(
    http,
    services as unknown as RunServices,
    job as unknown as TuningJobRow,
  ).then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  return { steps, error }
}

it('a training releases the slot of its background job before it waits for a worker', async () => {
  expect(await runQueued()).toEqual({ steps: ['leaveSlot', 'submit'], error: undefined })
})

it('a training that may not release its slot is retried later', async () => {
  const { steps, error } = await runQueued(() => {
    throw failure.overloaded('Too many.')
  })
  expect(steps).toEqual(['leaveSlot'])
  expect(error).toMatchObject({ kind: 'overloaded' })
})
