import { expect, onTestFinished } from 'vitest'

import { batchesPlugin } from '#api/batches/routes.ts'
import { createTuningJob } from '#api/fine-tuning/create-job.ts'
import { BackgroundJobs } from '#api/jobs/background-jobs.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'

/** Services that nothing may reach. */
const untouched = new Proxy({}, { get: () => undefined }) as never

it('callers whose limits count requests start no work that runs without one', async ({
  database,
}) => {
  const background = new BackgroundJobs(untouched)
  const option = {
    id: 'x',
    endpoint: '/x',
    createdAtMs: 0,
    body: Buffer.alloc(0),
    contentType: '',
    model: 'x',
  }
  const surface = await openV1App(
    database,
    [
      batchesPlugin(untouched),
      async (app) => {
        app.post('/background', { config: { scope: 'chat' } }, (request) =>
          background.create(callerOf(request), option),
        )
        app.post('/stored', { config: { scope: 'chat' } }, (request) =>
          background.createStored(callerOf(request), option),
        )
        app.post('/tuning', { config: { scope: 'fine_tuning' } }, (request) =>
          createTuningJob(request, untouched, untouched),
        )
      },
    ],
    {
      verifyAccessToken: async () => ({
        userId: 'visitor',
        isAnonymous: true,
        organizations: [{ id: 'org-visitor', role: 'owner' }],
      }),
    },
  )
  onTestFinished(() => surface.app.close())
  const keys = openApiKeys(database.db, organizationTables(''))
  const rights = { name: 'x', scopes: null, modelIds: null, expiresAt: null }
  const limited = await keys.create({ organizationId: 'org-one', ...rights, concurrentJobs: 1 })
  const batch = { input_file_id: 'x', endpoint: '/v1/completions', completion_window: '24h' }
  for (const [credential, reason] of [
    [limited.secret, 'their limits count requests alone'],
    ['eyJ.visitor.x', 'Anonymous users cannot create'],
  ] as const) {
    for (const [path, body] of [
      ['/batches', batch],
      ['/background', {}],
      ['/stored', {}],
      ['/tuning', {}],
    ] as const) {
      const answer = await surface.post(path, body, credential)
      const { error } = (await answer.json()) as { error: { code: string; message: string } }
      expect([path, answer.status, error.code]).toEqual([path, 403, 'insufficient_permissions'])
      expect(error.message).toContain(reason)
    }
  }
})
