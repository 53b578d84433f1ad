import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { type MailCatcher, startMailCatcher } from '#test/support/mail-catcher.ts'
import { type Snapshot, type Target, takeSnapshot } from '#test/support/promql.ts'
import { freshPrefix, type PrivateRedis, startRedis } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

/** The depth at which a queue is full. */
export const QUEUE_DEPTH_MAX = 32

/** A watched installation: small bounds, so that each can be met. */
export interface WatchedStack {
  readonly tiers: Tiers
  readonly redis: PrivateRedis
  readonly keyPrefix: string
  readonly databaseUrl: string
  readonly mail: MailCatcher
  readonly folder: string
  /** The worker of now; a fault may put another in its place. */
  worker: Awaited<ReturnType<Tiers['startWorker']>>
  /** Whether the API is among the targets. */
  isApiScraped: boolean
  scrape(): Promise<Snapshot>
  ask(path: string, init?: RequestInit): Promise<Response>
  post(path: string, body: object, init?: RequestInit): Promise<Response>
  upload(path: string, fields: Readonly<Record<string, string | Blob>>): Promise<Response>
  stop(): Promise<void>
}

/** Starts it, with a Redis of its own to be killed. */
export async function startWatchedStack(): Promise<WatchedStack> {
  const [database, redis, mail] = await Promise.all([
    createDatabase(),
    startRedis(),
    startMailCatcher(),
  ])
  const folder = await mkdtemp(join(tmpdir(), 'millrace-watched-'))
  const keyPrefix = freshPrefix()
  const tiers = await startTiers({
    databaseUrl: database.url,
    redisUrl: redis.url,
    keyPrefix,
    folder,
    env: {
      MILLRACE_WORKER_MODELS: 'tiny-chat,tiny-whisper',
      MILLRACE_QUEUE_DEPTH_MAX: String(QUEUE_DEPTH_MAX),
      MILLRACE_PASSWORD_HASH_CONCURRENCY: '1',
      AUTH_DB_MAX_POOL_SIZE: '3',
      AUTH_SMTP_HOST: mail.host,
      AUTH_SMTP_PORT: String(mail.port),
      AUTH_RATE_LIMIT_EMAIL_SENT: '1000',
      AUTH_EXTERNAL_PHONE_ENABLED: 'true',
      AUTH_SMS_PROVIDER: 'vonage',
      AUTH_SMS_VONAGE_FROM: 'Mill',
      AUTH_SMS_VONAGE_API_KEY: 'key',
      AUTH_SMS_VONAGE_API_SECRET: 'secret',
    },
  })
  const ask: WatchedStack['ask'] = (path, init = {}) =>
    fetch(`${tiers.url}${path}`, {
      ...init,
      headers: { authorization: `Bearer ${tiers.apiKey}`, ...init.headers },
    })
  const stack: WatchedStack = {
    tiers,
    redis,
    keyPrefix,
    databaseUrl: database.url,
    mail,
    folder,
    ask,
    worker: await tiers.startWorker(),
    isApiScraped: true,
    scrape: () => takeSnapshot(targetsOf(stack)),
    post: (path, body, init = {}) =>
      ask(path, {
        ...init,
        method: 'POST',
        headers: { 'content-type': 'application/json', ...init.headers },
        body: JSON.stringify(body),
      }),
    upload(path, fields) {
      const form = new FormData()
      for (const [name, value] of Object.entries(fields)) form.set(name, value)
      return ask(path, { method: 'POST', body: form })
    },
    async stop() {
      await tiers.stop()
      await Promise.all([redis.close(), mail.stop(), database.drop()])
      await rm(folder, { recursive: true, force: true })
    },
  }
  return stack
}

/** A bit of everything that the dashboard shows. */
export async function makeTraffic(stack: WatchedStack): Promise<void> {
  const { post, upload, ask } = stack
  const chat = {
    model: 'tiny-chat',
    messages: [{ role: 'user', content: 'What is the capital of France?' }],
    max_tokens: 8,
  }
  await Promise.all([1, 2, 3].map(async () => (await post('/v1/chat/completions', chat)).text()))
  await (await post('/v1/chat/completions', { ...chat, stream: true })).text()
  await (
    await post('/v1/completions', { model: 'tiny-chat', prompt: 'Once', max_tokens: 4 })
  ).text()
  const email = `${Math.random()}@example.test`
  await post('/signup', { email, password: 'a long enough password' })
  await post('/token?grant_type=password', { email, password: 'a wrong password' })
  const document = new File(['{"text":"a document"}\n'], 'documents.jsonl')
  const file = await upload('/v1/files', { purpose: 'search', file: document })
  const { id } = (await file.json()) as { id: string }
  await (await ask(`/v1/files/${id}/content`)).text()
  await ask(`/v1/files/${id}`, { method: 'DELETE' })
}

/** A recording from the fixtures. */
export async function clip(name: string): Promise<File> {
  const bytes = await readFile(join(import.meta.dirname, '../../fixtures/audio', name))
  return new File([bytes], name)
}

function targetsOf({ tiers, worker, isApiScraped }: WatchedStack): readonly Target[] {
  return [
    ...(isApiScraped ? [{ job: 'api', url: tiers.metricsUrl }] : []),
    { job: 'worker', url: worker.metricsUrl },
  ]
}
