import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import type { FastifyRequest } from 'fastify'

import type { QuotaState } from '#api/limits/quotas.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { type Clock, unixSeconds } from '#shared/clock.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { isStorable } from '#shared/storable.ts'

import { USAGE_GROUPS, type UsageGroup, type UsageLine, type UsageRecord } from './usage-store.ts'

const DAY_MS = 86_400_000
const FLUSH_TIMEOUT_MS = 1000
const DAYS_DEFAULT = 30
const LIMIT_DEFAULT = 100
// The end of the year 9999.
const SECONDS_MAX = 253_402_300_799

/** `GET /usage`: the usage of an organization by day, model and key. */
export function usagePlugin(services: {
  readonly usage: Pick<UsageRecord, 'list'>
  readonly usageWriter: { flush(timeoutMs: number): Promise<void> }
  readonly clock: Clock
  /** The quotas of the caller's key and organization. */
  quotaStates(request: FastifyRequest): Promise<readonly QuotaState[]>
}): FastifyPluginAsyncTypebox {
  return async (app) => {
    app.get('/usage', { schema: LIST, config: { scope: 'usage' } }, async (request) => {
      const { start_time, end_time, group_by, after, limit, model, api_key_id } = request.query
      const untilMs = end_time === undefined ? services.clock.now() + 1 : end_time * 1000
      const sinceMs =
        start_time === undefined
          ? Math.max(0, Math.floor(untilMs / DAY_MS) - DAYS_DEFAULT + 1) * DAY_MS
          : start_time * 1000
      if (sinceMs >= untilMs) throw invalid('start_time', "'start_time' must be before 'end_time'.")
      const groupBy = parseGroups(group_by)
      // Flushes this process's rows first, so that the listing includes its own
      // answers, unless a read replica is behind.
      await services.usageWriter.flush(FLUSH_TIMEOUT_MS)
      const { organizationId, userId, role } = callerOf(request)
      const { lines, hasMore } = await services.usage.list(organizationId, {
        // Members see their own usage; owners and administrators see that of all members.
        ...(role === 'member' && userId !== undefined && { userId }),
        sinceMs,
        untilMs,
        groupBy,
        limit: limit ?? LIMIT_DEFAULT,
        ...(model !== undefined && { model }),
        ...(api_key_id !== undefined && { apiKeyId: api_key_id }),
        ...(after !== undefined && { after: parseCursor(after, groupBy.length) }),
      })
      const data = lines.map((line) => presentLine(line, groupBy))
      const quotas = await services.quotaStates(request)
      return {
        object: 'list' as const,
        data,
        first_id: data[0]?.id ?? null,
        last_id: data.at(-1)?.id ?? null,
        has_more: hasMore,
        quotas: quotas.map(presentQuota),
      }
    })
  }
}

function presentLine(line: UsageLine, groupBy: readonly UsageGroup[]) {
  const values: Record<UsageGroup, string | null> = {
    day: line.day,
    model: line.model,
    api_key_id: line.apiKeyId,
  }
  const cursor = JSON.stringify(groupBy.map((group) => values[group] ?? ''))
  return {
    id: `usage_${Buffer.from(cursor).toString('base64url')}`,
    object: 'usage' as const,
    ...values,
    requests: line.requests,
    prompt_tokens: line.promptTokens,
    completion_tokens: line.completionTokens,
    cached_tokens: line.cachedTokens,
    total_tokens: line.promptTokens + line.completionTokens,
  }
}

function presentQuota({ of, amount, period, limit, used, resetsAtMs }: QuotaState) {
  return {
    object: 'quota' as const,
    of,
    name: `${amount}_per_${period}`,
    limit,
    used,
    remaining: Math.max(0, limit - used),
    resets_at: unixSeconds(resetsAtMs),
  }
}

function parseGroups(text: string | undefined): readonly UsageGroup[] {
  if (text === undefined) return USAGE_GROUPS
  const wanted = text.split(',')
  return USAGE_GROUPS.filter((group) => wanted.includes(group))
}

function parseCursor(after: string, length: number): readonly string[] {
  try {
    const encoded = /^usage_([\w-]+)$/.exec(after)?.[1] ?? ''
    const values: unknown = JSON.parse(Buffer.from(encoded, 'base64url').toString('utf8'))
    const isCursor =
      Array.isArray(values) &&
      values.length === length &&
      values.every((value) => typeof value === 'string' && isStorable(value))
    if (isCursor) return values
  } catch {
    // Not a cursor; reported below.
  }
  throw invalid('after', "Invalid 'after': expected the id of a line of this list.")
}

function invalid(param: string, message: string): Error {
  return failure.invalidRequest(message, { param, code: 'invalid_value' })
}

const SECONDS = Type.Integer({ minimum: 0, maximum: SECONDS_MAX })
const NULLABLE = Type.Union([Type.String(), Type.Null()])
const COUNT = Type.Integer()
const LINE = Type.Object({
  id: Type.String(),
  object: Type.Literal('usage'),
  day: NULLABLE,
  model: NULLABLE,
  api_key_id: NULLABLE,
  requests: COUNT,
  prompt_tokens: COUNT,
  completion_tokens: COUNT,
  cached_tokens: COUNT,
  total_tokens: COUNT,
})
const QUOTA = Type.Object({
  object: Type.Literal('quota'),
  of: Type.Enum(['api_key', 'organization']),
  name: Type.Enum([
    ...['requests_per_day', 'requests_per_month', 'tokens_per_day', 'tokens_per_month'],
    ...['cost_per_day', 'cost_per_month'],
  ]),
  limit: Type.Number(),
  used: Type.Number(),
  remaining: Type.Number(),
  resets_at: COUNT,
})
const NAME = Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\u0000]+$' })
const LIST = {
  tags: ['Usage'],
  security: [{ apiKey: [] }],
  operationId: 'listUsage',
  summary: 'Show the usage of the organization',
  description:
    'One row per day, model and key, including batches. Keys, owners and administrators see the whole organization; members see their own usage. `quotas` has the quotas of the key and of the organization.',
  querystring: Type.Object(
    {
      start_time: Type.Optional(SECONDS),
      end_time: Type.Optional(SECONDS),
      group_by: Type.Optional(
        Type.String({
          maxLength: 100,
          pattern: '^(day|model|api_key_id)(,(day|model|api_key_id))*$',
          description:
            'The grouping: any of day, model, api_key_id, separated by commas; all if absent.',
        }),
      ),
      model: Type.Optional(NAME),
      api_key_id: Type.Optional(NAME),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
      after: Type.Optional(Type.String({ minLength: 1, maxLength: 2000 })),
    },
    { additionalProperties: false },
  ),
  response: {
    200: Type.Object({
      object: Type.Literal('list'),
      data: Type.Array(LINE),
      first_id: NULLABLE,
      last_id: NULLABLE,
      has_more: Type.Boolean(),
      quotas: Type.Array(QUOTA),
    }),
  },
}
