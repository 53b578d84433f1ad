import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { requireUnlimitedKey } from '#api/limits/own-limits.ts'
import {
  KEY_LIMIT_FIELDS,
  type KeyLimitsBody,
  keyLimitsOf,
  presentKeyLimits,
} from '#api/v1/key-limits.ts'
import { deletedResponse, listResponse } from '#api/v1/list-response.ts'
import { anonymousUsersCannot, type Caller, callerOf } from '#api/v1/request-context.ts'
import { SCOPES } from '#api/v1/scopes.ts'
import { unixSeconds } from '#shared/clock.ts'
import type { ApiKeyRequest, StoredApiKey } from '#shared/db/api-keys.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable } from '#shared/schemas.ts'

import { optionalInteger } from './field-schemas.ts'
import { getModel } from './model-route.ts'
import { errorResponses } from './response-schemas.ts'
import type { InferenceServices } from './services.ts'

const MODELS_MAX = 1000

const LIMITS_BODY = Type.Object(KEY_LIMIT_FIELDS, {
  additionalProperties: false,
  minProperties: 1,
})

const KEY_BODY = Type.Object(
  {
    name: Type.String({
      minLength: 1,
      maxLength: 200,
      description: 'A name that says what the key is for.',
    }),
    scopes: Type.Optional(
      nullable(
        Type.Array(choice(SCOPES), {
          maxItems: SCOPES.length,
          description: 'Endpoint families that the key may use; if absent, those of its creator.',
        }),
      ),
    ),
    models: Type.Optional(
      nullable(
        Type.Array(Type.String(), {
          maxItems: MODELS_MAX,
          description: 'Models that the key may use; if absent, those of its creator.',
        }),
      ),
    ),
    expires_at: optionalInteger({
      description:
        'The expiry of the key in Unix seconds; if absent, the key expires with its creator.',
    }),
    ...KEY_LIMIT_FIELDS,
  },
  { additionalProperties: false },
)

const LIST_OR_NULL = { type: ['array', 'null'], items: { type: 'string' } }
const KEY_FIELDS = {
  id: { type: 'string' },
  object: { const: 'api_key' },
  name: { type: 'string' },
  prefix: { type: 'string', description: 'The first characters of the secret.' },
  scopes: LIST_OR_NULL,
  models: LIST_OR_NULL,
  created_at: { type: 'integer' },
  expires_at: { type: ['integer', 'null'] },
  last_used_at: { type: ['integer', 'null'] },
  ...KEY_LIMIT_FIELDS,
}
const KEY_RESPONSE = {
  type: 'object',
  description: 'An API key.',
  required: ['id', 'object', 'name', 'prefix', 'created_at'],
  properties: KEY_FIELDS,
}
const NEW_KEY_RESPONSE = {
  type: 'object',
  description: 'The new key. Its secret is shown only this once.',
  required: ['id', 'object', 'name', 'prefix', 'created_at', 'secret'],
  properties: { ...KEY_FIELDS, secret: { type: 'string' } },
}

/**
 * `POST` and `GET /api_keys`, `PATCH` and `DELETE /api_keys/{id}` and key rotation, within the
 * caller's organization.
 */
export function registerKeys(app: FastifyInstance, services: InferenceServices): void {
  const { apiKeys } = services
  const common = { tags: ['API keys'], security: [{ apiKey: [] }] }
  app.post<{ Body: Static<typeof KEY_BODY> }>('/api_keys', {
    config: { scope: 'keys' },
    schema: {
      ...common,
      operationId: 'createApiKey',
      summary: 'Create an API key',
      body: KEY_BODY,
      response: { 200: NEW_KEY_RESPONSE, ...errorResponses(400, 401, 403, 413, 415) },
    },
    handler: async (request) => {
      mustMakeKeys(callerOf(request), services)
      const { key, secret } = await apiKeys.create(
        await newKey(request.body, callerOf(request), services),
      )
      services.note(request, keyEvent('Create', 'key.created', key))
      return { ...presentKey(key), secret }
    },
  })
  app.get('/api_keys', {
    config: { scope: 'keys' },
    schema: {
      ...common,
      operationId: 'listApiKeys',
      summary: 'List the API keys',
      response: { 200: listResponse(KEY_RESPONSE), ...errorResponses(401, 403) },
    },
    handler: async (request) => {
      const keys = await apiKeys.list(callerOf(request).organizationId)
      return {
        object: 'list',
        data: keys.map(presentKey),
        first_id: keys[0]?.id ?? null,
        last_id: keys.at(-1)?.id ?? null,
        has_more: false,
      }
    },
  })
  registerRotation(app, services)
  registerLimits(app, services)
  app.delete<{ Params: { id: string } }>('/api_keys/:id', {
    config: { scope: 'keys' },
    schema: {
      ...common,
      operationId: 'revokeApiKey',
      summary: 'Revoke an API key',
      params: KEY_PARAMS,
      response: { 200: deletedResponse('api_key'), ...errorResponses(401, 403, 404) },
    },
    handler: async (request) => {
      const { id } = request.params
      if (!(await apiKeys.revoke(callerOf(request).organizationId, id))) {
        throw failure.notFound(`No such API key: ${id.slice(0, 64)}`, { param: 'id' })
      }
      services.note(request, keyEvent('Delete', 'key.revoked', { id }))
      return { id, object: 'api_key', deleted: true }
    },
  })
}

const KEY_PARAMS = {
  type: 'object',
  required: ['id'],
  properties: { id: { type: 'string', pattern: '^[^\\u0000]+$' } },
}

/** The recorded fields of a key. They never include its secret or a part of it. */
function keyEvent(type: string, event: string, { id, name }: { id: string; name?: string }) {
  return { type, event, object: { id: `key:${id}`, type: 'ApiKey', name } }
}

function registerRotation(app: FastifyInstance, services: InferenceServices): void {
  const { apiKeys, note } = services
  app.post<{ Params: { id: string } }>('/api_keys/:id/rotate', {
    config: { scope: 'keys' },
    schema: {
      tags: ['API keys'],
      security: [{ apiKey: [] }],
      operationId: 'rotateApiKey',
      summary: 'Give an API key a new secret; the old one stops working within a second',
      params: KEY_PARAMS,
      response: { 200: NEW_KEY_RESPONSE, ...errorResponses(401, 403, 404) },
    },
    handler: async (request) => {
      const { id } = request.params
      const caller = callerOf(request)
      mustMakeKeys(caller, services)
      const old = await apiKeys.find(caller.organizationId, id)
      if (old !== undefined) mustCover(caller, old)
      const rotated = await apiKeys.rotate(caller.organizationId, id, creatorOf(caller))
      if (rotated === undefined) {
        throw failure.notFound(`No such API key: ${id.slice(0, 64)}`, { param: 'id' })
      }
      note(request, keyEvent('Update', 'key.rotated', rotated.key))
      return { ...presentKey(rotated.key), secret: rotated.secret }
    },
  })
}

function registerLimits(app: FastifyInstance, services: InferenceServices): void {
  const { apiKeys, note } = services
  app.patch<{ Params: { id: string }; Body: KeyLimitsBody }>('/api_keys/:id', {
    config: { scope: 'keys' },
    schema: {
      tags: ['API keys'],
      security: [{ apiKey: [] }],
      operationId: 'limitApiKey',
      summary: 'Change the limits of an API key within a second; null removes a limit',
      params: KEY_PARAMS,
      body: LIMITS_BODY,
      response: { 200: KEY_RESPONSE, ...errorResponses(400, 401, 403, 404, 413, 415) },
    },
    handler: async (request) => {
      const { id } = request.params
      const caller = callerOf(request)
      requireUnlimitedKey(caller)
      const key = await apiKeys.limit(caller.organizationId, id, keyLimitsOf(request.body))
      if (key === undefined) {
        throw failure.notFound(`No such API key: ${id.slice(0, 64)}`, { param: 'id' })
      }
      note(request, keyEvent('Update', 'key.limited', key))
      return presentKey(key)
    },
  })
}

// A key outlives the session of an anonymous user and escapes the limit of anonymous users.
function mustMakeKeys(caller: Caller, { config }: InferenceServices): void {
  requireUnlimitedKey(caller)
  const { isAnonymous } = caller
  if (isAnonymous !== true || config.anonymousUsersMayCreateKeys === true) return
  throw anonymousUsersCannot('create API keys')
}

/**
 * The caller receives the secret of the key and thus its rights, so they must be the caller's own.
 */
function mustCover(caller: Caller, key: StoredApiKey): void {
  const covers = (own: readonly string[] | null, wanted: readonly string[] | null): boolean =>
    own === null || (wanted?.every((right) => own.includes(right)) ?? false)
  if (!covers(caller.scopes, key.scopes)) throw tooManyRights('id', 'scopes of this key')
  if (!covers(caller.modelIds, key.modelIds)) throw tooManyRights('id', 'models of this key')
  const endsAtMs = key.expiresAt?.getTime() ?? Infinity
  if (caller.expiresAtMs !== null && endsAtMs > caller.expiresAtMs) {
    throw tooManyRights('id', 'the expiry of this key')
  }
}

/**
 * A key created by a key belongs to the same user, so that no chain of keys outlives that user's
 * rights.
 */
function creatorOf({ userId, madeBy }: Caller): string | null {
  return userId ?? madeBy ?? null
}

/** A new key with the requested rights, which its creator must have. */
async function newKey(
  body: Static<typeof KEY_BODY>,
  caller: Caller,
  services: InferenceServices,
): Promise<ApiKeyRequest> {
  const expiresAtMs =
    typeof body.expires_at === 'number' ? body.expires_at * 1000 : caller.expiresAtMs
  if (
    expiresAtMs !== null &&
    !(expiresAtMs > services.clock.now() && expiresAtMs <= LATEST_DATE_MS)
  ) {
    throw failure.invalidRequest("Invalid 'expires_at': expected a time in the future.", {
      param: 'expires_at',
      code: 'invalid_value',
    })
  }
  if (caller.expiresAtMs !== null && (expiresAtMs ?? Infinity) > caller.expiresAtMs) {
    throw tooManyRights('expires_at', 'a later expiry')
  }
  const models = body.models?.map((name) => getModel(services, caller, name, 'models'))
  const modelIds = models && (await Promise.all(models)).map(({ id }) => id)
  return {
    organizationId: caller.organizationId,
    name: body.name,
    scopes: subset(body.scopes ?? null, caller.scopes, 'scopes'),
    modelIds: subset(modelIds ?? null, caller.modelIds, 'models'),
    expiresAt: expiresAtMs === null ? null : new Date(expiresAtMs),
    createdBy: creatorOf(caller),
    ...keyLimitsOf(body),
  }
}

// The last year of four digits; Postgres does not parse the ISO form of later years.
const LATEST_DATE_MS = Date.UTC(9999, 11, 31)

function subset(
  wanted: readonly string[] | null,
  own: readonly string[] | null,
  param: string,
): readonly string[] | null {
  if (own === null || wanted === null) return wanted ?? own
  const extra = wanted.find((right) => !own.includes(right))
  if (extra !== undefined) throw tooManyRights(param, `'${extra.slice(0, 64)}'`)
  return wanted
}

function tooManyRights(param: string, what: string): Error {
  return failure.accessDenied(
    `An API key cannot create or rotate a key with more rights than its own: it lacks ${what}.`,
    { param, code: 'insufficient_permissions' },
  )
}

function presentKey(key: StoredApiKey): object {
  const seconds = (date: Date | null): number | null =>
    date === null ? null : unixSeconds(date.getTime())
  return {
    id: key.id,
    object: 'api_key',
    name: key.name,
    prefix: key.prefix,
    scopes: key.scopes,
    models: key.modelIds,
    created_at: seconds(key.createdAt),
    expires_at: seconds(key.expiresAt),
    last_used_at: seconds(key.lastUsedAt),
    ...presentKeyLimits(key),
  }
}
