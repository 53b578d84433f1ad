import type { FastifyInstance, FastifyPluginAsync } from 'fastify'

import { buildApp } from '#api/server/app.ts'
import { type V1Services, v1Plugin } from '#api/v1/plugin.ts'
import { systemClock } from '#shared/clock.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import type { Database } from '#shared/db/client.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { createLogger } from '#shared/logger.ts'

import { serverConfig } from './server-config.ts'

/** Surfaces of `/v1` that listen, over a real database. */
export interface V1App {
  readonly app: FastifyInstance
  /** The address, without `/v1`. */
  readonly base: string
  /** An API key of `org-one`. */
  readonly key: string
  /** A key of an organization that is made if need be. */
  newKey(organizationId: string, scopes?: readonly string[]): Promise<string>
  call(path: string, init?: RequestInit, secret?: string): Promise<Response>
  /** Posts JSON. */
  post(path: string, body: unknown, secret?: string): Promise<Response>
}

/** Builds and starts an application with these surfaces; close `app` afterwards. */
export async function openV1App(
  database: Database,
  surfaces: readonly FastifyPluginAsync[],
  more: Partial<V1Services> = {},
): Promise<V1App> {
  const tables = organizationTables('')
  const apiKeys = openApiKeys(database.db, tables)
  const log = createLogger({ level: 'silent' })
  const app = await buildApp({
    server: serverConfig(),
    version: '0.0.0',
    publicUrl: 'http://localhost',
    log,
    health: { dependencies: { states: async () => [] }, isDraining: () => false },
    surfaces: [
      {
        prefixes: ['/v1'],
        plugin: v1Plugin({ apiKeys, clock: systemClock, log, ...more }, surfaces),
      },
    ],
  })
  const base = await app.listen({ port: 0, host: '127.0.0.1' })
  const newKey = async (organizationId: string, scopes?: readonly string[]) => {
    const organization = { id: organizationId, name: organizationId }
    await database.db.insert(tables.organizations).values(organization).onConflictDoNothing()
    const request = {
      organizationId,
      name: 'test',
      scopes: scopes ?? null,
      modelIds: null,
      expiresAt: null,
    }
    return (await apiKeys.create(request)).secret
  }
  const key = await newKey('org-one')
  const call = (path: string, init: RequestInit = {}, secret = key) =>
    fetch(`${base}/v1${path}`, {
      ...init,
      headers: { authorization: `Bearer ${secret}`, ...init.headers },
    })
  return {
    app,
    base,
    key,
    newKey,
    call,
    post: (path, body, secret) =>
      call(
        path,
        {
          method: 'POST',
          body: JSON.stringify(body),
          headers: { 'content-type': 'application/json' },
        },
        secret,
      ),
  }
}
