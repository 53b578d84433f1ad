import { Queue } from 'bullmq'
import { Redis } from 'ioredis'
import { describe, expect } from 'vitest'

import { buildApp } from '#api/app.ts'
import { dashboardPlugin } from '#api/dashboard/plugin.ts'
import { parseCatalogue } from '#shared/catalogue.ts'
import { queueName } from '#shared/contracts/queues.ts'
import { createLogger } from '#shared/logger.ts'
import { serverConfig } from '#test/support/server-config.ts'
import { it } from '#test/support/services.ts'

const CATALOGUE = parseCatalogue({ models: [{ id: 'toy', kind: 'completion', source: 'x' }] })
const TOKEN = 'the-admin-token-of-this-test'
const basic = (password: string) => `Basic ${Buffer.from(`admin:${password}`).toString('base64')}`

async function openDashboard(redisUrl: string, prefix: string) {
  const connection = new Redis(redisUrl, { maxRetriesPerRequest: null })
  const queue = new Queue(queueName('completion', 'toy'), { connection, prefix })
  const app = await buildApp({
    server: serverConfig(),
    version: '0.0.0',
    publicUrl: 'http://localhost',
    log: createLogger({ level: 'silent' }),
    health: { checks: [], isDraining: () => false },
    surfaces: [
      {
        prefixes: ['/admin/queues'],
        plugin: dashboardPlugin({
          catalogue: CATALOGUE,
          queueOf: () => queue,
          guard: {
            adminToken: TOKEN,
            isAdministrator: async (token) => token === 'of-an-administrator',
          },
        }),
      },
    ],
  })
  const get = (url: string, authorization?: string) =>
    app.inject({ url, headers: authorization === undefined ? {} : { authorization } })
  const close = async () => {
    await app.close()
    await queue.close()
    connection.disconnect()
  }
  return { app, queue, get, close }
}

describe('the queue dashboard', () => {
  it('admits administrators and nobody else, its static files included', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const { get, close } = await openDashboard(redisUrl, keyPrefix)
    const statuses = async (authorization?: string) =>
      Promise.all(
        ['/admin/queues/', '/admin/queues/api/queues', '/admin/queues/static/js/x.js'].map(
          async (url) => (await get(url, authorization)).statusCode,
        ),
      )
    expect(await statuses()).toEqual([401, 401, 401])
    expect(await statuses('Bearer of-a-user')).toEqual([403, 403, 403])
    expect(await statuses(basic('wrong'))).toEqual([403, 403, 403])
    expect(await statuses(basic(TOKEN))).toEqual([200, 200, 404])
    expect((await statuses(`Bearer ${TOKEN}`))[0]).toBe(200)
    expect((await statuses('Bearer of-an-administrator'))[0]).toBe(200)
    await close()
  })

  it('shows a waiting job without what it contains, and lets nobody change it', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const { app, queue, get, close } = await openDashboard(redisUrl, keyPrefix)
    const input = { prompts: [{ form: 'text', text: 'a very private prompt' }] }
    await queue.add(
      'completion',
      { jobId: 'cmpl-1', modelId: 'toy', input, replyTo: 'secret stream' },
      { jobId: 'cmpl-1-1' },
    )
    const answer = await get(
      '/admin/queues/api/queues?activeQueue=completion.toy&status=latest&page=1',
      basic(TOKEN),
    )
    expect(answer.body).toContain('cmpl-1')
    expect(answer.body).toContain('[redacted]')
    expect(answer.body).not.toContain('private prompt')
    expect(answer.body).not.toContain('secret stream')
    const change = await app.inject({
      method: 'PUT',
      url: '/admin/queues/api/queues/completion.toy/cmpl-1-1/clean',
      headers: { authorization: basic(TOKEN) },
    })
    expect(change.statusCode).toBeGreaterThanOrEqual(400)
    expect(await queue.getJobCountByTypes('waiting', 'prioritized')).toBe(1)
    await close()
  })

  it('forbids scripts and connections from anywhere else', async ({ redisUrl, keyPrefix }) => {
    const { get, close } = await openDashboard(redisUrl, keyPrefix)
    const policy = (await get('/admin/queues/', basic(TOKEN))).headers['content-security-policy']
    expect(policy).toContain("default-src 'none'")
    expect(policy).toContain("script-src 'self';")
    await close()
  })
})
