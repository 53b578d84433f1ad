import { join } from 'node:path'

import { Client as PostgresClient } from 'pg'

import { spawnReady } from '#test/support/queue.ts'
import { API_KEY } from '#test/support/tiers.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { openClient, ratePerSecond } from './support/people.ts'
import { openShippedTiers } from './support/service.ts'

const CONCURRENCY = 16
const EACH = 60
const ACTIVITY = { type: 'View', actor: 'user:1', object: 'https://example.test/documents/1' }

/** Routes without a job against routes of a bare Fastify with the same answer and statement. */
export async function benchRoutes(): Promise<readonly Figure[]> {
  const { tiers, databaseUrl, close } = await openShippedTiers()
  const ours = openClient(tiers.url)
  const headers = { authorization: `Bearer ${API_KEY}` }
  const { body: models } = await ours.get('/v1/models', headers)
  const { body: model } = await ours.get('/v1/models/tiny-chat', headers)
  await createBareTable(databaseUrl)
  const script = join(import.meta.dirname, 'support/bare-route.ts')
  const openBare = async (answer: object) => {
    const process = await spawnReady(script, [databaseUrl, JSON.stringify(answer)])
    return { process, client: openClient(process.workerId) }
  }
  const bare = { models: await openBare(models), model: await openBare(model) }
  const rate = (work: () => Promise<{ readonly status: number }>) => () =>
    ratePerSecond(CONCURRENCY, EACH, async () => {
      const { status } = await work()
      if (status >= 300) throw new Error(`answered ${status}`)
    })
  const figure = async (
    name: string,
    own: () => Promise<{ readonly status: number }>,
    other: () => Promise<{ readonly status: number }>,
  ): Promise<Figure> => ({
    name: `${name} ÷ a bare Fastify route with the same answer and one statement`,
    unit: '/s',
    ...(await alternate(rate(own), rate(other))),
    target: { atLeast: 0.6 },
  })
  try {
    return [
      await figure(
        'GET /v1/models',
        () => ours.get('/v1/models', headers),
        () => bare.models.client.get('/answer'),
      ),
      await figure(
        'GET /v1/models/{model}',
        () => ours.get('/v1/models/tiny-chat', headers),
        () => bare.model.client.get('/answer'),
      ),
      await figure(
        'POST /v1/activities',
        () => ours.post('/v1/activities', ACTIVITY, headers),
        () => bare.model.client.post('/activities', ACTIVITY),
      ),
    ]
  } finally {
    for (const { client, process } of Object.values(bare)) {
      client.close()
      process.kill('SIGKILL')
    }
    ours.close()
    await close()
  }
}

async function createBareTable(databaseUrl: string): Promise<void> {
  const sql = new PostgresClient({ connectionString: databaseUrl })
  await sql.connect()
  await sql.query('create table bare_activities (like activities including all)')
  await sql.end()
}
