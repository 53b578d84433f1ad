import { EventEmitter } from 'node:events'

import { expect, it } from 'vitest'

import { type RunServices, runTuningJob } from '#api/fine-tuning/run.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { systemClock } from '#shared/clock.ts'
import type { TuningJobRow } from '#shared/db/schema/fine-tuning.ts'
import { failure } from '#shared/errors.ts'

/**
 * Runs a validated job whose training replies with this progress and ends; returns what happened
 * in order, and the names of the recorded events.
 */
async function runQueued(leaveSlot: () => void = () => {}, replies: readonly object[] = []) {
  const steps: string[] = []
  const recorded: string[] = []
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
    tuning: {
      fail: async () => steps.push('fail'),
      async progress(_id: string, { events }: { events: readonly { name: string }[] }) {
        recorded.push(...events.map(({ name }) => name))
        return true
      },
      addCheckpoint: async () => {},
    },
    submitter: {
      submit() {
        steps.push('submit')
        return (async function* () {
          for (const training of replies) yield { type: 'progress', training }
        })()
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
  return { steps, error, recorded }
}

it('a training releases the slot of its background job before it waits for a worker', async () => {
  expect(await runQueued()).toMatchObject({ steps: ['leaveSlot', 'submit'], error: undefined })
})

it('a training that may not release its slot is retried later', async () => {
  const { steps, error } = await runQueued(() => {
    throw failure.overloaded('Too many.')
  })
  expect(steps).toEqual(['leaveSlot'])
  expect(error).toMatchObject({ kind: 'overloaded' })
})

it('records about a thousand steps of a long training, and each with a checkpoint or a loss', async () => {
  const progress = Array.from({ length: 5000 }, (_, index) => ({
    step: index + 1,
    steps: 5000,
    trainLoss: 1,
    trainedTokens: 1,
    ...(index + 1 === 2 && { checkpoint: { step: 2, prefix: 'two' } }),
    ...(index + 1 === 3 && { validationLoss: 1 }),
  }))
  const { recorded, error } = await runQueued(() => {}, progress)
  expect(error).toBeUndefined()
  expect(recorded.slice(0, 5)).toEqual(['step:1', 'step:2', 'step:3', 'step:5', 'step:10'])
  expect(recorded.at(-1)).toBe('step:5000')
  expect(recorded).toHaveLength(1003)
})
