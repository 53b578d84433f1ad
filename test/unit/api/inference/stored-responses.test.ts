import fastify from 'fastify'
import { describe, expect, it } from 'vitest'

import { registerStoredResponses } from '#api/inference/responses/stored-routes.ts'
import type { ResponseStorage } from '#api/inference/services.ts'
import { addRequestContext } from '#api/v1/request-context.ts'

const ROW = { organizationId: 'org-one', jobId: 'job_1', metadata: null }
const JOB = { id: 'job_1', cancelledAt: null, error: null }

/** A response whose job ends between two statements: `ends` says before which call to its jobs. */
async function openEnding(ends: 'find' | 'cancel') {
  let hasEnded = false
  const jobNow = () => ({ ...JOB, state: hasEnded ? 'completed' : 'in_progress' })
  const call = (name: 'find' | 'cancel') => async () => {
    hasEnded ||= name === ends
    return jobNow()
  }
  const answers = {
    find: async () => ({ row: ROW, answer: { status: hasEnded ? 'completed' : 'queued' } }),
  }
  return openRoutes({ answers, jobs: { find: call('find'), cancel: call('cancel') } })
}

function openRoutes(stored: object) {
  const app = fastify()
  app.setSerializerCompiler(() => (answer) => JSON.stringify(answer))
  addRequestContext(app)
  app.addHook('onRequest', async ({ context }) => {
    const caller = { organizationId: 'org-one', scopes: null, modelIds: null, expiresAtMs: null }
    context.caller = caller
  })
  registerStoredResponses(app, stored as ResponseStorage)
  return app
}

describe('a response in the background whose job ends while it is read', () => {
  it('is answered as it ended', async () => {
    const app = await openEnding('find')
    expect((await app.inject('/responses/resp_1')).json()).toMatchObject({ status: 'completed' })
  })

  it('is answered as it ended if its cancellation came too late', async () => {
    const app = await openEnding('cancel')
    const response = await app.inject({ method: 'POST', url: '/responses/resp_1/cancel' })
    expect(response.json()).toMatchObject({ status: 'completed' })
  })
})

describe('a response in the background whose process died before it stored the job', () => {
  it('has failed', async () => {
    const app = openRoutes({
      answers: { find: async () => ({ row: ROW, answer: { status: 'queued' } }) },
      jobs: { find: async () => undefined },
    })
    const response = await app.inject('/responses/resp_1')
    expect(response.json()).toMatchObject({ status: 'failed', error: { code: 'server_error' } })
  })
})
