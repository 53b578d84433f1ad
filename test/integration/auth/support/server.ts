import { randomUUID } from 'node:crypto'

import { type FastifyInstance, fastify, type InjectOptions } from 'fastify'
import { Redis } from 'ioredis'
import { SignJWT } from 'jose'
import { inject } from 'vitest'

import { createMailer, type SmtpMailer } from '#api/auth/delivery/mailer.ts'
import { authPlugin, UNKNOWN_PATHS } from '#api/auth/plugin.ts'
import type {
  CaptchaVerifier,
  Mailer,
  MailVariables,
  Providers,
  SmsSender,
} from '#api/auth/ports.ts'
import { type AuthServices, createAuthServices } from '#api/auth/services.ts'
import { type Clock, systemClock } from '#shared/clock.ts'
import { type AuthConfig, readAuthConfig } from '#shared/config/auth.ts'
import type { MailKind } from '#shared/config/auth-mail.ts'
import { ConfigError, EnvReader } from '#shared/config/env-reader.ts'
import { type Database, openDatabase } from '#shared/db/client.ts'
import { MIGRATIONS_FOLDER, migrate } from '#shared/db/migrate.ts'
import { authTables } from '#shared/db/schema/auth.ts'
import { createLogger, type Logger } from '#shared/logger.ts'
import type { MailCatcher } from '#test/support/mail-catcher.ts'
import { createDatabase } from '#test/support/services.ts'

/** A mail as the flows sent it. */
export interface SentMail {
  readonly kind: MailKind
  readonly to: string
  readonly variables: MailVariables
}

/** A text message as the flows sent it. */
export interface SentSms {
  readonly to: string
  readonly message: string
  readonly otp: string
}

/** A user server on a database of its own. */
export interface TestServer {
  readonly app: FastifyInstance
  readonly services: AuthServices
  readonly database: Database
  readonly databaseUrl: string
  readonly redis: Redis
  readonly clock: TestClock
  readonly mails: SentMail[]
  readonly messages: SentSms[]
  readonly events: string[]
  /** The newest mail to an address. */
  lastMail(to: string): SentMail
  call(request: CallOptions): Promise<CallResult>
  serviceToken(role?: string): Promise<string>
  close(): Promise<void>
}

export interface CallOptions {
  readonly method?:
    | 'GET'
    | 'POST'
    | 'PUT'
    | 'PATCH'
    | 'DELETE'
    | 'HEAD'
    | 'OPTIONS'
    | 'TRACE'
    | 'QUERY'
  readonly path: string
  readonly body?: unknown
  readonly bearer?: string
  readonly headers?: Record<string, string>
}

export interface CallResult {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: tests read answers of any shape.
  readonly body: any
  readonly headers: Record<string, string>
  readonly location: string
}

/** A clock that advances only when the test moves it. */
export interface TestClock extends Clock {
  advance(seconds: number): void
}

export interface ServerOptions {
  /** Settings besides the required ones. */
  readonly env?: Record<string, string>
  readonly isFrozen?: boolean
  /** Put before the names of all tables. */
  readonly tablePrefix?: string
  /** Another database than the migrated one, such as one that is not there. */
  readonly databaseUrl?: string
  readonly log?: Logger
  readonly mailer?: Mailer
  /** Sends mails over SMTP to this server instead of collecting them. */
  readonly mailServer?: Pick<MailCatcher, 'host' | 'port'>
  readonly captcha?: CaptchaVerifier
  readonly providers?: Providers
  readonly sms?: SmsSender
  readonly onUsersEnded?: AuthServices['onUsersEnded']
  /** False: an answer does not wait until its messages were sent or failed. */
  readonly waitsForMessages?: boolean
}

const REQUIRED = {
  AUTH_SITE_URL: 'http://localhost:3000',
  AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
  AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
  MILLRACE_ARGON2_MEMORY_KIB: '64',
  AUTH_SMTP_MAX_FREQUENCY: '60s',
  AUTH_RATE_LIMIT_EMAIL_SENT: '10000',
  AUTH_RATE_LIMIT_SMS_SENT: '10000',
}

/** Starts a user server with its own database; everything it sends is collected. */
export async function startServer(options: ServerOptions = {}): Promise<TestServer> {
  const log = options.log ?? createLogger({ level: 'silent' })
  const tablePrefix = options.tablePrefix ?? ''
  const { url, drop } = await createDatabase()
  const databaseUrl = options.databaseUrl ?? url
  const database = openDatabase({ url: databaseUrl, maxPoolSize: 10, logger: log })
  if (tablePrefix !== '') {
    await migrate({ pool: database.pool, folder: MIGRATIONS_FOLDER, tablePrefix, logger: log })
  }
  const redis = new Redis(inject('redisUrl'))
  const clock = createTestClock(options.isFrozen ?? false)
  const config = readConfig({ ...REQUIRED, ...smtpSettings(options), ...options.env })
  const smtp = options.mailServer && openSmtp(config, clock)
  const [mails, messages, events]: [SentMail[], SentSms[], string[]] = [[], [], []]
  const services = await createAuthServices({
    db: database.db,
    tables: authTables(tablePrefix),
    redis,
    redisKeyPrefix: `test:${randomUUID()}:`,
    config,
    clock,
    log,
    mailer: smtp ?? options.mailer ?? { send: async (mail) => void mails.push(mail) },
    sms: options.sms ?? collectingSms(config, messages),
    captcha: options.captcha ?? { verify: async () => undefined },
    providers: options.providers ?? NO_PROVIDERS,
    version: 'test',
    onSecurityEvent: (event) => events.push(event.action),
    ...(options.onUsersEnded !== undefined && { onUsersEnded: options.onUsersEnded }),
  })
  const app = fastify({ trustProxy: false })
  // The application refuses methods at the root.
  app.addHook('onRequest', (request, reply, next) => {
    if (!request.is404 || UNKNOWN_PATHS.refuseMethod(request, reply) === undefined) next()
  })
  await app.register(authPlugin(services), { prefix: '/' })
  await app.register(authPlugin(services), { prefix: '/auth/v1' })
  await app.ready()
  return {
    app,
    services,
    database,
    databaseUrl,
    redis,
    clock,
    mails,
    messages,
    events,
    lastMail(to) {
      const mail = mails.findLast((sent) => sent.to === to)
      if (mail === undefined) throw new Error(`no mail was sent to ${to}`)
      return mail
    },
    // Messages leave after the answer; tests read the mailbox at once.
    async call(request) {
      const answer = await call(app, request)
      if (options.waitsForMessages !== false) await services.outbox.idle()
      return answer
    },
    serviceToken: (role = 'service_role') => signToken(config, { role }),
    async close() {
      await app.close()
      await services.outbox.close()
      smtp?.close()
      redis.disconnect()
      await database.close()
      await drop()
    },
  }
}

/** Reads settings of the user server, as the process does at its start. */
export function readConfig(env: Record<string, string>): AuthConfig {
  const reader = new EnvReader(env)
  const config = readAuthConfig(reader)
  if (reader.problems.length > 0) throw new ConfigError(reader.problems)
  return config
}

/** An access token with the given claims, signed with the shared secret. */
export function signToken(config: AuthConfig, claims: Record<string, unknown>): Promise<string> {
  return new SignJWT(claims)
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .sign(new TextEncoder().encode(config.jwt.secret))
}

async function call(app: FastifyInstance, request: CallOptions): Promise<CallResult> {
  const { method = 'GET', path, body, bearer, headers = {} } = request
  const options: InjectOptions = {
    method,
    url: path,
    headers: {
      ...(body !== undefined && { 'content-type': 'application/json;charset=UTF-8' }),
      ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
      ...headers,
    },
    ...(body !== undefined && { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
  }
  const response = await app.inject(options)
  const isJson = response.headers['content-type']?.toString().includes('json') === true
  return {
    status: response.statusCode,
    body: isJson && response.body !== '' ? response.json() : response.body,
    headers: response.headers as Record<string, string>,
    location: String(response.headers.location ?? ''),
  }
}

function smtpSettings({ mailServer }: ServerOptions): Record<string, string> {
  if (mailServer === undefined) return {}
  return {
    AUTH_SMTP_HOST: mailServer.host,
    AUTH_SMTP_PORT: String(mailServer.port),
    AUTH_SMTP_ADMIN_EMAIL: 'admin@example.com',
  }
}

function openSmtp(config: AuthConfig, clock: Clock): SmtpMailer {
  const log = createLogger({ level: 'silent' })
  const { smtp, mailer } = config
  return createMailer({ smtp, mailer, siteUrl: config.site.url, clock, log })
}

function createTestClock(isFrozen: boolean): TestClock {
  const frozenAt = Date.parse('2026-01-15T12:00:00Z')
  let offsetMs = 0
  return {
    now: () => (isFrozen ? frozenAt : systemClock.now()) + offsetMs,
    monotonic: () => systemClock.monotonic(),
    advance: (seconds) => {
      offsetMs += seconds * 1000
    },
  }
}

function collectingSms(config: AuthConfig, messages: SentSms[]): SmsSender {
  return {
    async send({ to, message, otp }) {
      messages.push({ to, message, otp })
      return { messageId: `message-${messages.length}` }
    },
    requireGateway: () => undefined,
    testOtp: (phone) => config.sms.testOtps[phone],
  }
}

const NO_PROVIDERS: Providers = {
  get: (id) => {
    throw new Error(`there is no provider ${id}`)
  },
  enabledIds: () => [],
  idTokenIssuer: () => undefined,
  allIds: ['github', 'google'],
}
