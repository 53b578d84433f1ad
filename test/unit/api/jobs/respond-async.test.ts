import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import fastify from 'fastify'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { BackgroundJobs } from '#api/jobs/background-jobs.ts'
import { HeldBytes } from '#api/jobs/held-bytes.ts'
import { respondAsync } from '#api/jobs/respond-async.ts'
import { addRequestContext } from '#api/v1/request-context.ts'
import { systemClock } from '#shared/clock.ts'
import { ServiceError } from '#shared/errors.ts'
import { createLogger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'

const MEBIBYTE = 1024 * 1024
const FORM = 'multipart/form-data; boundary=x'

let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-forms-'))
})
afterAll(() => rm(folder, { recursive: true }))

/** A route of forms whose jobs are stored when the test says so. */
async function open() {
  const stored: { readonly bytes: number; finish(): void }[] = []
  const background = {
    newId: () => 'job_1',
    createStored: async (_request: unknown, { body }: { readonly body: Buffer }) => {
      await new Promise<void>((finish) => stored.push({ bytes: body.length, finish }))
      const at = new Date(0)
      const dates = { createdAt: at, notBefore: at, expiresAt: at }
      return { id: 'job_1', ...dates, startedAt: null, endedAt: null, cancelledAt: null }
    },
  } as unknown as BackgroundJobs
  const app = fastify({ bodyLimit: 100 * MEBIBYTE })
  app.addContentTypeParser('multipart/form-data', (_request, _payload, done) => done(null))
  addRequestContext(app)
  app.addHook('onRequest', async ({ context }) => {
    const caller = { organizationId: 'org-one', scopes: null, modelIds: null, expiresAtMs: null }
    context.caller = caller
  })
  app.setErrorHandler((error, _request, reply) =>
    reply.code(error instanceof ServiceError && error.kind === 'tooLarge' ? 413 : 500).send(),
  )
  const gate = respondAsync({
    background,
    clock: systemClock,
    store: openDirectoryStore(folder),
    temporaryBytes: new HeldBytes(1024 * MEBIBYTE),
    jobs: { storesNothing: async () => false },
    log: createLogger({ level: 'silent' }),
  })
  app.post('/forms', { config: { scope: 'audio' } }, (request, reply) => gate(request, reply))
  const post = (bytes: number) =>
    app.inject({
      method: 'POST',
      url: '/forms',
      payload: Buffer.alloc(bytes),
      headers: { 'content-type': FORM, prefer: 'respond-async' },
    })
  return { post, stored }
}

describe('a form in the background', () => {
  it('waits in storage while others are packed, and is deleted there', async () => {
    const { post, stored } = await open()
    const answers = [post(33 * MEBIBYTE), post(34 * MEBIBYTE)]
    await expect.poll(() => stored.length).toBe(1)
    const waiting = async () => (await readdir(join(folder, 'temporary'))).length
    await expect.poll(waiting).toBe(2)
    expect(stored).toHaveLength(1)
    stored[0]?.finish()
    await expect.poll(() => stored.length).toBe(2)
    stored[1]?.finish()
    const statuses = (await Promise.all(answers)).map(({ statusCode }) => statusCode)
    expect(statuses).toEqual([202, 202])
    const sizes = stored.map(({ bytes }) => bytes / MEBIBYTE).toSorted()
    expect([sizes, await waiting()]).toEqual([[33, 34], 0])
  }, 30_000)

  it('is refused when it is too large', async () => {
    const { post, stored } = await open()
    expect((await post(65 * MEBIBYTE)).statusCode).toBe(413)
    expect(stored).toEqual([])
  }, 30_000)
})
