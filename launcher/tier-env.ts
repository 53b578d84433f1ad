import { type Config, type Env, loadConfig } from '#shared/config/config.ts'

import type { Secrets } from './data-dir.ts'
import type { Mailbox } from './embedded/mailbox.ts'

const DEFAULT_PORT = 8081
const FILLER_MAILBOX = { smtpPort: 25, smtpUser: 'filler', smtpPassword: 'filler' }
// Alternative names of settings with a default here: the default must not override them.
const OTHER_SPELLINGS = {
  AUTH_API_EXTERNAL_URL: 'API_EXTERNAL_URL',
  OTEL_EXPORTER_PROMETHEUS_PORT: 'AUTH_METRICS_OTEL_EXPORTER_PROMETHEUS_PORT',
  OTEL_EXPORTER_PROMETHEUS_HOST: 'AUTH_METRICS_OTEL_EXPORTER_PROMETHEUS_HOST',
} as const
const FORMER_NAME = /^GOTRUE_(SITE_URL|API_PORT|API_EXTERNAL_URL|JWT_SECRET|DB_|SMTP_)/

/**
 * Reports every wrong setting before anything is started; settings that are generated later are
 * filled in.
 */
export function checkSettings(env: Env, dataDir: string): Config {
  const filler = 'f'.repeat(64)
  const { AUTH_API_PORT: _, ...settings } = composeEnv(env, {
    dataDir,
    redisUrl: 'redis://127.0.0.1',
    databaseUrl: env.AUTH_DB_DATABASE_URL ?? env.DATABASE_URL ?? 'postgres://127.0.0.1/postgres',
    mailbox: env.AUTH_SMTP_HOST === undefined ? FILLER_MAILBOX : undefined,
    secrets: {
      jwtSecret: filler,
      apiKey: filler,
      urlSigningSecret: filler,
      adminToken: filler,
      encryptionKey: filler,
    },
    ports: { api: DEFAULT_PORT, apiMetrics: 0, workerMetrics: 0 },
  })
  // The port under the name with which it was set, for the message.
  return loadConfig({ ...settings, ...env }).config
}

/** The environment of the tiers; the user's own settings take precedence. */
export function composeEnv(
  env: Env,
  parts: {
    readonly dataDir: string
    readonly redisUrl: string
    readonly databaseUrl: string
    readonly mailbox: Pick<Mailbox, 'smtpPort' | 'smtpUser' | 'smtpPassword'> | undefined
    readonly secrets: Omit<Secrets, 'redisPassword' | 'postgresPassword'>
    readonly ports: {
      readonly api: number
      readonly apiMetrics: number
      readonly workerMetrics: number
    }
  },
): Record<string, string | undefined> {
  const { secrets, mailbox, ports } = parts
  const publicUrl = `http://localhost:${ports.api}`
  const defaults: Record<string, string> = {
    MILLRACE_DATA_DIR: parts.dataDir,
    REDIS_URL: parts.redisUrl,
    AUTH_DB_DATABASE_URL: parts.databaseUrl,
    AUTH_DB_DRIVER: 'postgres',
    AUTH_SITE_URL: publicUrl,
    AUTH_API_EXTERNAL_URL: publicUrl,
    AUTH_JWT_SECRET: secrets.jwtSecret,
    MILLRACE_BOOTSTRAP_API_KEY: secrets.apiKey,
    MILLRACE_URL_SIGNING_SECRET: secrets.urlSigningSecret,
    MILLRACE_ADMIN_TOKEN: secrets.adminToken,
    MILLRACE_ENCRYPTION_KEY: secrets.encryptionKey,
    OTEL_EXPORTER_PROMETHEUS_PORT: String(ports.apiMetrics),
    OTEL_EXPORTER_PROMETHEUS_HOST: '127.0.0.1',
    MILLRACE_WORKER_METRICS_PORT: String(ports.workerMetrics),
    UV_THREADPOOL_SIZE: '16',
    ...(mailbox !== undefined && {
      AUTH_SMTP_HOST: '127.0.0.1',
      AUTH_SMTP_PORT: String(mailbox.smtpPort),
      AUTH_SMTP_ADMIN_EMAIL: 'no-reply@localhost.localdomain',
    }),
  }
  for (const [name, other] of Object.entries(OTHER_SPELLINGS)) {
    if (env[other] !== undefined) delete defaults[name]
  }
  const given = { ...env }
  // Any free port: chosen here, because the start polls the worker's readiness.
  if (given.MILLRACE_WORKER_METRICS_PORT === '0') delete given.MILLRACE_WORKER_METRICS_PORT
  // The tiers read the port under its other name.
  delete given.PORT
  // The mailbox would refuse leftover credentials of another mail server.
  const credentials = mailbox !== undefined && {
    AUTH_SMTP_USER: mailbox.smtpUser,
    AUTH_SMTP_PASS: mailbox.smtpPassword,
  }
  return { ...defaults, ...given, ...credentials, AUTH_API_PORT: String(ports.api) }
}

/**
 * The settings as given. An empty value counts as unset, as in the tiers; settings that the
 * launcher reads or has a default for are also found under their former names.
 */
export function readSettings(env: Env): Record<string, string> {
  const settings = Object.fromEntries(
    Object.entries(env).flatMap(([name, value = '']) =>
      value.trim() === '' ? [] : [[name, value]],
    ),
  )
  for (const [name, value] of Object.entries(settings)) {
    const own = FORMER_NAME.test(name) ? name.replace('GOTRUE_', 'AUTH_') : name
    settings[own] ??= value
  }
  return settings
}
