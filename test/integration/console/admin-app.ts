import { Queue } from 'bullmq'
import type { FastifyInstance, LightMyRequestResponse } from 'fastify'
import { Redis } from 'ioredis'

import { adminPlugin } from '#api/console/admin-plugin.ts'
import type { ConsoleArea } from '#api/console/api.ts'
import { IncidentLog } from '#api/console/incident-log.ts'
import { IncidentWatch } from '#api/console/incident-watch.ts'
import { SeriesLog } from '#api/console/series-log.ts'
import { openAdminSessions } from '#api/console/sessions.ts'
import type { CheckPassword } from '#api/console/sign-in.ts'
import { createGuessLimiter } from '#api/limits/guess-limiter.ts'
import type { Surface } from '#api/server/app.ts'
import { buildApp } from '#api/server/app.ts'
import { parseCatalogue } from '#shared/catalogue.ts'
import { systemClock } from '#shared/clock.ts'
import { queueName } from '#shared/contracts/job.ts'
import { createLogger } from '#shared/logger.ts'
import { type QueueKeys, queueKeys } from '#shared/queue/keys.ts'
import { findLostWorkers, listWorkers } from '#shared/queue/liveness.ts'
import { serverConfig } from '#test/support/server-config.ts'

/** The admin token of the tests. */
export const TOKEN = 'the-admin-token-of-this-test'

/** The administration pages over a real Redis, without a user server. */
export interface AdminApp {
  readonly app: FastifyInstance
  readonly queue: Queue
  readonly redis: Redis
  readonly keys: QueueKeys
  readonly incidents: IncidentLog
  get(url: string, headers?: Readonly<Record<string, string>>): Promise<LightMyRequestResponse>
  close(): Promise<void>
}

/**
 * Opens the pages; `administrators` are the users who may see them, with their present passwords.
 */
export async function openAdminApp(options: {
  readonly redisUrl: string
  readonly keyPrefix: string
  readonly modelId?: string
  readonly adminToken?: string
  readonly administrators?: ReadonlyMap<string, string>
  readonly checkPassword?: CheckPassword
  readonly slowMs?: number
  readonly areas?: readonly ConsoleArea[]
  readonly more?: readonly Surface[]
}): Promise<AdminApp> {
  const { redisUrl, keyPrefix, administrators = new Map(), slowMs = 5000 } = options
  const modelId = options.modelId ?? 'toy'
  const redis = new Redis(redisUrl, { maxRetriesPerRequest: null })
  const keys = queueKeys(keyPrefix)
  const log = createLogger({ level: 'silent' })
  const queue = new Queue(queueName('completion', modelId), {
    connection: redis,
    prefix: keyPrefix,
  })
  const incidents = new IncidentLog({ redis, prefix: keyPrefix, log })
  const series = new SeriesLog({ redis, prefix: keyPrefix, log })
  const app = await buildApp({
    server: serverConfig(),
    version: '0.0.0',
    publicUrl: 'http://localhost',
    log,
    health: { dependencies: { states: async () => [] }, isDraining: () => false },
    watchers: [new IncidentWatch(incidents, { slowMs, series })],
    surfaces: [
      {
        prefixes: ['/admin'],
        plugin: adminPlugin({
          dependencies: { states: async () => [] },
          onCatalogueChange: () => {},
          catalogue: parseCatalogue({
            models: [{ id: modelId, kind: 'completion', source: 'x' }],
          }),
          version: '0.0.0',
          slowAfterMs: slowMs,
          queues: {
            of: () =>
              ({
                redis,
                keys,
                producer: { queue: () => queue },
                ledger: { servedAtMs: () => undefined },
              }) as never,
            workers: () => listWorkers(redis, keys),
            workersLost: () => findLostWorkers(redis, keys),
          },
          incidents: () => incidents.read(),
          areas: options.areas ?? [],
          audit: async () => {},
          series,
          outbox: async () => ({ waiting: 0, failing: 0 }),
          checkPassword:
            options.checkPassword ??
            (async () => ({ kind: 'refused', status: 401, reason: 'Invalid login credentials' })),
          guard: {
            adminToken: options.adminToken ?? TOKEN,
            findAdministrator: async (token) => (token === 'of-an-administrator' ? '' : undefined),
            roleNow: async ({ userId, passwordDigest }) =>
              administrators.get(userId) === passwordDigest ? 'administrator' : undefined,
            endSession: async () => {},
            sessions: openAdminSessions(redis, keyPrefix),
            guesses: createGuessLimiter({
              redis,
              log,
              clock: systemClock,
              keyPrefix: `${keyPrefix}:admin:`,
              config: {
                perAccount: 10,
                perAccountEverywhere: 100,
                perNetwork: 50,
                waitSecondsMax: 900,
              },
            }),
          },
        }),
      },
      ...(options.more ?? []),
    ],
  })
  return {
    app,
    queue,
    redis,
    keys,
    incidents,
    get: (url, headers = {}) => app.inject({ url, headers }),
    async close() {
      await app.close()
      await incidents.close()
      await series.close()
      await queue.close()
      redis.disconnect()
    },
  }
}

type Headers = Readonly<Record<string, string | undefined>>

function withoutMissing(headers: Headers): Record<string, string> {
  const entries = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  )
  return Object.fromEntries(entries)
}

/** A browser of the crudest kind: keeps cookies, names HTML and its own origin. */
export function crudeBrowser(app: FastifyInstance) {
  const cookies = new Map<string, string>()
  const headers = (): Record<string, string> => ({
    accept: 'text/html,application/xhtml+xml,*/*;q=0.8',
    cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; '),
    host: 'millrace.test',
  })
  const keep = (answer: LightMyRequestResponse) => {
    for (const { name, value } of answer.cookies) cookies.set(name, value)
    return answer
  }
  const get = async (url: string) => keep(await app.inject({ url, headers: headers() }))
  const post = async (url: string, fields: Readonly<Record<string, string>>, more: Headers = {}) =>
    keep(
      await app.inject({
        method: 'POST',
        url,
        headers: withoutMissing({
          ...headers(),
          'content-type': 'application/x-www-form-urlencoded',
          origin: 'http://millrace.test',
          'sec-fetch-site': 'same-origin',
          ...more,
        }),
        payload: new URLSearchParams(fields).toString(),
      }),
    )
  /** Opens the form and sends it with what is given. */
  const submit = async (fields: Readonly<Record<string, string>>, more: Headers = {}) => {
    const page = await get('/admin/sign-in')
    return post('/admin/sign-in', { form: formSecretIn(page.body), ...fields }, more)
  }
  return { cookies, get, post, submit }
}

/** The CSRF token in the form of a page. */
export function formSecretIn(body: string): string {
  return /name="form" value="([^"]+)"/.exec(body)?.[1] ?? ''
}
