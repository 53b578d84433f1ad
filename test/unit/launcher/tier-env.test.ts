import { expect, it } from 'vitest'

import { checkSettings, composeEnv, readSettings } from '#launcher/tier-env.ts'
import { loadConfig } from '#shared/config/config.ts'

const secret = 'f'.repeat(64)
const PARTS = {
  dataDir: '/tmp/x',
  redisUrl: 'redis://redis',
  databaseUrl: 'postgres://db/x',
  mailbox: { smtpPort: 2525, smtpUser: 'user', smtpPassword: secret },
  secrets: {
    jwtSecret: secret,
    apiKey: secret,
    urlSigningSecret: secret,
    adminToken: secret,
    encryptionKey: secret,
  },
  ports: { api: 5000, apiMetrics: 9100, workerMetrics: 9101 },
}

it.each([
  ['AUTH_METRICS_OTEL_EXPORTER_PROMETHEUS_PORT', '9300'],
  ['AUTH_METRICS_OTEL_EXPORTER_PROMETHEUS_HOST', '127.0.0.2'],
  ['API_EXTERNAL_URL', 'https://api.example.com'],
  ['PORT', '0'],
])('a start of everything reads %s under that spelling as well', (name, value) => {
  const { config, warnings } = loadConfig(composeEnv({ [name]: value }, PARTS))
  const { prometheus } = config.telemetry
  const read = [`${prometheus.port}`, prometheus.host, config.auth.site.externalUrl]
  // Any free port has been chosen by then.
  expect([...read, name === 'PORT' && config.server.port === 5000 ? '0' : '']).toContain(value)
  expect(warnings).toEqual([])
})

it.each([
  ['GOTRUE_JWT_SECRET', 'a secret of another installation, 40 characters'],
  ['GOTRUE_SITE_URL', 'https://app.example.com'],
  ['GOTRUE_API_EXTERNAL_URL', 'https://api.example.com'],
  ['GOTRUE_SMTP_ADMIN_EMAIL', 'post@example.com'],
])('a start of everything prefers a given %s to its default', (name, value) => {
  const { config } = loadConfig(composeEnv(readSettings({ [name]: value }), PARTS))
  expect(JSON.stringify(config)).toContain(value)
})

it('finds a given mail server and database under their former names', () => {
  const env = {
    GOTRUE_SMTP_HOST: 'mail',
    GOTRUE_DB_DATABASE_URL: 'postgres://db/y',
    AUTH_SMTP_HOST: ' ',
  }
  expect(readSettings(env)).toMatchObject({
    AUTH_SMTP_HOST: 'mail',
    AUTH_DB_DATABASE_URL: 'postgres://db/y',
  })
})

it('moves the metrics if the API uses their default port', () => {
  expect(checkSettings({ PORT: '9100' }, '/tmp/x').server.port).toBe(9100)
})

it.each([
  [{ PORT: '9300', OTEL_EXPORTER_PROMETHEUS_PORT: '9300' }, true],
  [{ PORT: '9300', OTEL_EXPORTER_PROMETHEUS_PORT: '9300', AUTH_API_HOST: '::' }, true],
  [{ PORT: '9300', OTEL_EXPORTER_PROMETHEUS_PORT: '9301' }, false],
  [{ PORT: '0', OTEL_EXPORTER_PROMETHEUS_PORT: '0' }, false],
  [
    {
      PORT: '9300',
      AUTH_API_HOST: '127.0.0.2',
      OTEL_EXPORTER_PROMETHEUS_PORT: '9300',
      OTEL_EXPORTER_PROMETHEUS_HOST: '127.0.0.3',
    },
    false,
  ],
])('checks that the API and its metrics have a port each: %j', (settings, isRefused) => {
  const check = () => checkSettings(settings, '/tmp/x')
  const problem = 'PORT and OTEL_EXPORTER_PROMETHEUS_PORT are both 9300: use different ports'
  if (isRefused) expect(check).toThrow(problem)
  else expect(check).not.toThrow()
})

it.each([
  ['0', '9101'],
  ['9400', '9400'],
])('with %s as the port of the worker’s metrics they have %s', (given, expected) => {
  const env = composeEnv({ MILLRACE_WORKER_METRICS_PORT: given }, PARTS)
  expect(env.MILLRACE_WORKER_METRICS_PORT).toBe(expected)
})
