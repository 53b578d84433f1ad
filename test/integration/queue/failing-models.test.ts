import { afterEach, beforeEach, expect, inject, it } from 'vitest'

import type { OpenSubmitter } from '#api/jobs/submit.ts'
import {
  eventually,
  freshPrefix,
  openTestSubmitter,
  readAll,
  toyRequest,
} from '#test/support/queue.ts'
import { startToyWorker, toyText } from '#test/support/toy-worker.ts'

let submitter: OpenSubmitter
let prefix: string
const stops: (() => Promise<void>)[] = []

beforeEach(async () => {
  prefix = freshPrefix()
  submitter = await openTestSubmitter(inject('redisUrl'), prefix)
})

afterEach(async () => {
  await submitter.close()
  for (const stop of stops.splice(0)) await stop()
})

const startWorker = async (beforeLoading?: () => void): Promise<void> => {
  const worker = await startToyWorker(inject('redisUrl'), prefix, 4, beforeLoading)
  stops.push(() => worker.stop())
}
const ask = () => readAll(submitter.submit(toyRequest('x', 1)))
const isRefused = { kind: 'overloaded', code: 'model_unavailable', retryAfterSeconds: 5 }

it('a request for a model that cannot be loaded is refused, until it can be', async () => {
  let isDamaged = true
  await startWorker(() => {
    if (isDamaged) throw new Error('/srv/models/toy/onnx/model.onnx: the file is damaged')
  })
  await expect(ask()).rejects.toMatchObject({
    ...isRefused,
    message:
      'The model `toy` could not be loaded and is not available at the moment (model.onnx: the file is damaged). Please retry later.',
  })
  await expect(ask()).rejects.toMatchObject(isRefused)
  isDamaged = false
  await eventually(() => submitter.ledger.unavailable.size === 0)
  expect(await ask()).toMatchObject({ text: toyText(1) })
}, 60_000)

it('a worker that cannot load a model still serves another that can be loaded', async () => {
  await startWorker(() => {
    throw new Error('a file is damaged')
  })
  await startWorker()
  const failing = () =>
    submitter.ledger.workers.map(({ queues }) => queues.some((queue) => queue.isFailing)).toSorted()
  await expect.poll(failing).toEqual([false, true])
  expect(await ask()).toMatchObject({ text: toyText(1) })
}, 60_000)
