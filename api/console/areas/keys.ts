import type { Pool } from 'pg'

import { bodyOf, type ConsoleArea, type ConsoleCall, SHORT_TEXT } from '#api/console/api.ts'
import { listQuery, quotaFields, readPage, TEXT_FILTER } from '#api/console/lists.ts'
import { KEY_LIMIT_FIELDS, type KeyLimitsBody, keyLimitsOf } from '#api/v1/key-limits.ts'
import { SCOPES } from '#api/v1/scopes.ts'
import type { Catalogue } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { LimitsConfig } from '#shared/config/limits.ts'
import { type ApiKeyStore, NO_KEY_LIMITS } from '#shared/db/api-keys.ts'
import { failure } from '#shared/errors.ts'

interface KeyServices {
  readonly pool: Pool
  readonly prefix: string
  readonly apiKeys: ApiKeyStore
  readonly catalogue: Catalogue
  readonly clock: Clock
  readonly limits: LimitsConfig
}

interface NewKey extends KeyLimitsBody {
  readonly organization_id: string
  readonly name: string
  readonly scopes?: readonly string[] | null
  readonly models?: readonly string[] | null
  readonly expires_in_days?: number | null
}

interface OneKey {
  readonly key: string
}

const DAY_MS = 86_400_000
const NEW_KEY = bodyOf(
  {
    organization_id: SHORT_TEXT,
    name: SHORT_TEXT,
    scopes: { type: ['array', 'null'], items: { enum: SCOPES }, maxItems: SCOPES.length },
    models: { type: ['array', 'null'], items: SHORT_TEXT, maxItems: 1000 },
    expires_in_days: { type: ['integer', 'null'], minimum: 1, maximum: 3650 },
    ...KEY_LIMIT_FIELDS,
  },
  ['organization_id', 'name'],
)

/** API keys of all organizations. */
export function keyArea(services: KeyServices): ConsoleArea {
  const { apiKeys, limits } = services
  return {
    reads: [
      {
        path: '/keys',
        query: listQuery({ query: TEXT_FILTER, organization: TEXT_FILTER }),
        handle: async ({ query }: ConsoleCall<object, object, KeyFilter>) => ({
          ...(await listKeys(services, query)),
          limits: {
            requests_per_minute: limits.requestsPerMinute.key,
            tokens_per_minute: limits.tokensPerMinute.key,
            monthly_tokens: limits.monthlyTokens,
          },
        }),
      },
    ],
    actions: [
      {
        method: 'POST',
        path: '/keys',
        role: 'administrator',
        operation: 'key.create',
        body: NEW_KEY,
        detail: (body: NewKey) => body,
        handle: ({ body }: ConsoleCall<object, NewKey>) => createKey(services, body),
      },
      {
        method: 'POST',
        path: '/keys/:key/rotate',
        role: 'administrator',
        operation: 'key.rotate',
        async handle({ params: { key: id } }: ConsoleCall<OneKey>) {
          const organizationId = await organizationOf(services, id)
          const old = await apiKeys.find(organizationId, id)
          const rotated = await apiKeys.rotate(organizationId, id, old?.createdBy ?? null)
          if (rotated === undefined) throw noSuchKey(id)
          return { id, secret: rotated.secret }
        },
      },
      {
        method: 'POST',
        path: '/keys/:key/limits',
        role: 'administrator',
        operation: 'key.limit',
        body: bodyOf(KEY_LIMIT_FIELDS),
        detail: (body: KeyLimitsBody) => body,
        async handle({ params: { key: id }, body }: ConsoleCall<OneKey, KeyLimitsBody>) {
          const organizationId = await organizationOf(services, id)
          // The form sends all limits that are set; absent ones are removed.
          const limits = { ...NO_KEY_LIMITS, ...keyLimitsOf(body) }
          const limited = await apiKeys.limit(organizationId, id, limits)
          if (limited === undefined) throw noSuchKey(id)
        },
      },
      {
        method: 'DELETE',
        path: '/keys/:key',
        role: 'administrator',
        operation: 'key.revoke',
        async handle({ params: { key: id } }: ConsoleCall<OneKey>) {
          if (!(await apiKeys.revoke(await organizationOf(services, id), id))) throw noSuchKey(id)
        },
      },
    ],
  }
}

interface KeyFilter {
  readonly query?: string
  readonly organization?: string
  readonly page?: number
}

function listKeys({ pool, prefix }: KeyServices, { query, organization, page }: KeyFilter) {
  return readPage(pool, {
    page,
    values: [query, organization],
    text: `select k.id, k.name, k.prefix, k.scopes, k.model_ids as models, k.created_at, k.expires_at,
        k.last_used_at, k.requests_per_minute::float8, k.tokens_per_minute::float8,
        k.concurrent_jobs::float8 as concurrent_requests, ${quotaFields('k')}, k.organization_id, o.name as organization, u.email as created_by
      from ${prefix}api_keys k join ${prefix}organizations o on o.id = k.organization_id
        left join ${prefix}users u on u.id = k.created_by
      where k.revoked_at is null and ($2::text is null or k.organization_id = $2)
        and ($1::text is null or k.id = $1 or k.prefix = left($1, length(k.prefix))
          or position(lower($1) in lower(k.name)) > 0)
      order by k.created_at desc, k.id`,
  })
}

async function createKey({ apiKeys, catalogue, clock }: KeyServices, body: NewKey) {
  const { organization_id: organizationId, name, scopes = null, expires_in_days: days } = body
  const modelIds = body.models?.map((model) => {
    const found = catalogue.find(model)
    if (found !== undefined) return found.id
    throw failure.invalidRequest(`There is no model '${model}'.`, { param: 'models' })
  })
  const { key, secret } = await apiKeys.create({
    organizationId,
    name,
    scopes,
    modelIds: modelIds ?? null,
    expiresAt: typeof days === 'number' ? new Date(clock.now() + days * DAY_MS) : null,
    ...keyLimitsOf(body),
  })
  return { id: key.id, secret }
}

async function organizationOf({ pool, prefix }: KeyServices, id: string): Promise<string> {
  const { rows } = await pool.query<{ organization_id: string }>(
    `select organization_id from ${prefix}api_keys where id = $1 and revoked_at is null`,
    [id],
  )
  if (rows[0] === undefined) throw noSuchKey(id)
  return rows[0].organization_id
}

function noSuchKey(id: string): Error {
  return failure.notFound(`No such API key: ${id.slice(0, 64)}`, { param: 'key' })
}
