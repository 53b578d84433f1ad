import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import type { FastifyInstance } from 'fastify'
import { inject } from 'vitest'

import { buildApp } from '#api/server/app.ts'
import { openServices, type Services } from '#api/server/services.ts'
import { loadSurfaces } from '#api/server/surfaces.ts'
import { openUserServer } from '#api/server/user-server.ts'
import { openApiTelemetry } from '#api/telemetry/open-telemetry.ts'
import { loadConfig } from '#shared/config/config.ts'
import { createLogger } from '#shared/logger.ts'
import { createDatabase } from '#test/support/services.ts'
import { API_KEY, apiEnv } from '#test/support/tiers.ts'

import { crudeBrowser, formSecretIn } from './admin-app.ts'

const TOKEN = 'the-admin-token-of-the-console'
const PASSWORD = 'a long password of the tests'

/** An answer of the console's API. */
// biome-ignore lint/suspicious/noExplicitAny: the expectations of the tests are its shape.
type Answer = any

/** A signed-in browser of the console, with its API. */
export interface ConsoleClient {
  readonly userId: string | undefined
  read(path: string): Promise<Answer>
  /** Sends a change as the page does; resolves with its answer. */
  send(method: string, path: string, body?: object): Promise<Answer>
  /** Resolves with the status and the error code of any request. */
  attempt(
    method: string,
    path: string,
    options?: { readonly body?: object; readonly headers?: Readonly<Record<string, string>> },
  ): Promise<{ readonly status: number; readonly code: string | undefined; readonly text: string }>
}

/** The whole API in this process, with real services and no worker. */
export interface ConsoleStack {
  readonly app: FastifyInstance
  readonly services: Services
  readonly keyPrefix: string
  /** The settings of the process. */
  readonly env: Readonly<Record<string, string>>
  /** Calls the public API with the bootstrap key. */
  v1(method: string, path: string, body?: object, key?: string): Promise<Answer>
  /** Signs in as a new user with a role of the console, or with the admin token. */
  signIn(role: 'viewer' | 'operator' | 'administrator' | 'token'): Promise<ConsoleClient>
  /** Creates a user; resolves with the id. */
  createUser(email: string, fields?: object): Promise<string>
  close(): Promise<void>
}

/** Opens it with a database and a folder of its own; `env` adds settings. */
export async function openConsole(
  env: Readonly<Record<string, string>> = {},
): Promise<ConsoleStack> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-console-'))
  const database = await createDatabase()
  const keyPrefix = `test-${randomUUID().slice(0, 8)}`
  const settings = {
    ...apiEnv(database.url, 1),
    MILLRACE_DATA_DIR: folder,
    MILLRACE_REDIS_PREFIX: keyPrefix,
    REDIS_URL: inject('redisUrl'),
    MILLRACE_ADMIN_TOKEN: TOKEN,
    ...env,
  }
  const { config } = loadConfig(settings)
  const log = createLogger({ level: 'silent' })
  const telemetry = await openApiTelemetry(config, '0.0.0', log)
  const services = await openServices(config, log, telemetry)
  const users = await openUserServer(services, '0.0.0', telemetry)
  const { surfaces, start } = await loadSurfaces(services, users, '0.0.0')
  const app = await buildApp({
    server: config.server,
    version: '0.0.0',
    publicUrl: 'http://localhost',
    log,
    health: { dependencies: services.dependencies, isDraining: () => false },
    surfaces,
    watchers: [services.incidentWatch],
  })
  const work = start(app)
  const signInWith = async (fields: Readonly<Record<string, string>>, userId?: string) => {
    const browser = crudeBrowser(app)
    const answer = await browser.submit(fields)
    if (answer.statusCode !== 303) throw new Error(`not signed in: ${answer.body}`)
    const page = await browser.get('/admin')
    return clientOf(app, { cookies: browser.cookies, token: formSecretIn(page.body), userId })
  }
  const stack: ConsoleStack = {
    app,
    services,
    keyPrefix,
    env: settings,
    async v1(method, path, body, key = API_KEY) {
      const answer = await app.inject({
        method: method as 'GET',
        url: `/v1${path}`,
        headers: { authorization: `Bearer ${key}` },
        ...(body !== undefined && { payload: body }),
      })
      return answer.json()
    },
    async createUser(email, fields = {}) {
      const { store, passwords } = users.services
      const passwordHash = await passwords.hash(PASSWORD)
      const now = store.now()
      const values = { createdAt: now, updatedAt: now, emailConfirmedAt: now, aud: 'authenticated' }
      const id = randomUUID()
      const { users: table } = store.tables
      await store.db.insert(table).values({ id, email, passwordHash, ...values, ...fields })
      return id
    },
    async signIn(role) {
      if (role === 'token') return signInWith({ token: TOKEN })
      const email = `${role}-${randomUUID().slice(0, 8)}@example.test`
      const userId = await stack.createUser(email, { appMetadata: { console_role: role } })
      return signInWith({ email, password: PASSWORD }, userId)
    },
    async close() {
      await Promise.all([work.stop(), services.background.stop()])
      await app.close()
      await users.close()
      await services.close()
      await telemetry.close()
      await database.drop()
      await rm(folder, { recursive: true, force: true })
    },
  }
  return stack
}

function clientOf(
  app: FastifyInstance,
  signedIn: {
    readonly cookies: ReadonlyMap<string, string>
    readonly token: string
    readonly userId: string | undefined
  },
): ConsoleClient {
  const { cookies, token, userId } = signedIn
  const call = (method: string, path: string, more: { body?: object; headers?: object } = {}) =>
    app.inject({
      method: method as 'GET',
      url: `/admin/api/${path}`,
      headers: {
        cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; '),
        'sec-fetch-site': 'same-origin',
        'x-console-token': token,
        ...more.headers,
      },
      ...(more.body !== undefined && { payload: more.body }),
    })
  const send = async (method: string, path: string, body?: object): Promise<Answer> => {
    const answer = await call(method, path, { ...(body !== undefined && { body }) })
    if (answer.statusCode === 200) return answer.json()
    throw new Error(`${method} ${path}: ${answer.statusCode} ${answer.body}`)
  }
  return {
    userId,
    send,
    read: (path) => send('GET', path),
    async attempt(method, path, options = {}) {
      const { statusCode: status, body: text } = await call(method, path, options)
      const isJson = text.startsWith('{')
      return { status, text, code: isJson ? JSON.parse(text).error?.code : undefined }
    },
  }
}
