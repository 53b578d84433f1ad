import { join } from 'node:path'

import { findFreePort, type PrivateChild, startChild, waitUntil } from '#launcher/embedded/child.ts'

/** Real API and worker processes, as `millrace api` and `millrace worker` start them. */
export interface Tiers {
  /** The first API process's address. */
  readonly url: string
  readonly apiKey: string
  /** Where the first API process serves its metrics. */
  readonly metricsUrl: string
  /** Starts another API process; resolves with its address when it is ready. */
  startApi(): Promise<{ url: string; metricsUrl: string; process: PrivateChild }>
  /** Starts another worker; resolves when its models are loaded. */
  startWorker(): Promise<{ metricsUrl: string; process: PrivateChild; kill(): Promise<void> }>
  stop(): Promise<void>
}

const READY_TIMEOUT_MS = 60_000
/** The key that API processes of tests are started with. */
export const API_KEY = 'mr-a-key-of-the-tests'
/** The key with which processes of tests encrypt content. */
export const TIERS_ENCRYPTION_KEY = 'a key of the tests for content in Redis'
/** Settings of workers that load no model but the one for text, and start the sooner. */
export const ONE_MODEL = { MILLRACE_WORKER_MODELS: 'tiny-chat' }

/** The services and the folder of a tier of tests. `env` adds settings. */
export interface TierPlace {
  readonly databaseUrl: string
  readonly redisUrl: string
  readonly keyPrefix: string
  readonly folder: string
  readonly env?: Readonly<Record<string, string>>
}

/** Starts one API process; workers are started by the test. */
export async function startTiers(options: TierPlace): Promise<Tiers> {
  const running: PrivateChild[] = []
  const common = commonEnv(options)
  const start = async (name: 'api' | 'worker', env: Record<string, string>, port: number) => {
    const child = await startChild({
      command: process.execPath,
      args: [join(import.meta.dirname, '../../launcher/cli.ts'), name],
      env: { ...common, ...env, ...options.env },
      logFile: join(options.folder, `${name}.log`),
      stopSignal: 'TERM',
    })
    running.push(child)
    await waitUntil(() => assertReady(port), { timeoutMs: READY_TIMEOUT_MS, child })
    return child
  }
  const startApi = async () => {
    const [port, metricsPort] = await Promise.all([findFreePort(), findFreePort()])
    const url = `http://127.0.0.1:${port}`
    const env = {
      ...apiEnv(options.databaseUrl, port),
      OTEL_EXPORTER_PROMETHEUS_PORT: String(metricsPort),
    }
    const metricsUrl = `http://127.0.0.1:${metricsPort}`
    return { url, metricsUrl, process: await start('api', env, port) }
  }
  const api = await startApi()
  return {
    url: api.url,
    metricsUrl: api.metricsUrl,
    apiKey: API_KEY,
    startApi,
    async startWorker() {
      const port = await findFreePort()
      const child = await start('worker', { MILLRACE_WORKER_METRICS_PORT: String(port) }, port)
      const metricsUrl = `http://127.0.0.1:${port}`
      return { metricsUrl, process: child, kill: () => child.stop(0) }
    },
    async stop() {
      await Promise.all(running.map((child) => child.stop()))
    },
  }
}

/** The settings that API processes and workers of tests share. */
export function commonEnv(place: TierPlace): Record<string, string> {
  return {
    MILLRACE_DATA_DIR: place.folder,
    MILLRACE_REDIS_PREFIX: place.keyPrefix,
    REDIS_URL: place.redisUrl,
    MILLRACE_ENCRYPTION_KEY: TIERS_ENCRYPTION_KEY,
    LOG_LEVEL: 'warn',
  }
}

/** The settings of an API process of tests that listens on a port of the loopback interface. */
export function apiEnv(databaseUrl: string, port: number): Record<string, string> {
  const url = `http://127.0.0.1:${port}`
  return {
    DATABASE_URL: databaseUrl,
    AUTH_DB_DRIVER: 'postgres',
    AUTH_API_HOST: '127.0.0.1',
    AUTH_API_PORT: String(port),
    AUTH_SITE_URL: url,
    AUTH_API_EXTERNAL_URL: url,
    AUTH_JWT_SECRET: 'a secret of the tests that is long enough',
    AUTH_SMTP_HOST: '127.0.0.1',
    AUTH_SMTP_PORT: '1',
    AUTH_SMTP_ADMIN_EMAIL: 'no-reply@example.test',
    MILLRACE_BOOTSTRAP_API_KEY: API_KEY,
    MILLRACE_URL_SIGNING_SECRET: 'another secret of the tests',
  }
}

async function assertReady(port: number): Promise<void> {
  const answer = await fetch(`http://127.0.0.1:${port}/readyz`)
  await answer.body?.cancel()
  if (!answer.ok) throw new Error(`port ${port} is not ready`)
}
