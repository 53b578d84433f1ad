import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'

import { bodyUnchecked, registerJsonBody } from '#api/http/validation.ts'
import { type Caller, callerOf, contentsReaderOf } from '#api/v1/request-context.ts'
import { type Clock, unixSeconds } from '#shared/clock.ts'
import type { ActivityRow } from '#shared/db/schema/activities.ts'
import { failure } from '#shared/errors.ts'
import { timeOrderedId } from '#shared/ids.ts'
import { Type } from '#shared/schema-types.ts'
import { choice } from '#shared/schemas.ts'

import {
  type Activity,
  BATCH_MAX,
  digestOf,
  OWN_ID_PREFIX,
  parseActivities,
  parseMoment,
  REFERENCES,
} from './activity.ts'
import type { Activities, ActivityQuery, NewActivity } from './activity-store.ts'

interface ActivityServices {
  readonly activities: Activities
  readonly clock: Clock
}

const MEDIA_TYPES = ['application/activity+json', 'application/ld+json']
const LIMIT_DEFAULT = 20

/** `/activities`: record one or many, list, retrieve. */
export function activitiesPlugin(services: ActivityServices): FastifyPluginAsyncTypebox {
  const { activities, clock } = services
  return async (app) => {
    registerJsonBody(app, MEDIA_TYPES)
    const record = { schema: RECORD, config: WRITE, validatorCompiler: bodyUnchecked(app) }
    app.post('/activities', record, async (request, reply) => {
      const caller = callerOf(request)
      const nowMs = clock.now()
      const { batchName, activities: parsed } = parseActivities(request.body, {
        actor: actorOf(caller),
        nowMs,
      })
      const { rows, createdCount } = await activities.record(
        caller.organizationId,
        parsed.map((activity) => identify(activity, nowMs)),
        {
          nowMs,
          pathOf: (index) => (batchName === undefined ? 'id' : `${batchName}[${index}].id`),
        },
      )
      // The schema describes both forms; validating against it would cost more than recording.
      reply
        .code(createdCount > 0 ? 201 : 200)
        .type('application/json; charset=utf-8')
        .serializer(JSON.stringify)
      if (batchName !== undefined)
        return { object: 'list' as const, data: rows.map(presentActivity) }
      const row = rows[0] as ActivityRow
      reply.header('location', `/v1/activities/${encodeURIComponent(row.id)}`)
      return presentActivity(row)
    })

    app.get('/activities', { schema: LIST, config: READ }, async (request) => {
      const { since, until, limit = LIMIT_DEFAULT, order = 'desc', ...filters } = request.query
      const query: ActivityQuery = {
        ...filters,
        limit,
        order,
        ...(since !== undefined && { sinceMs: parseMoment(since, 'since') }),
        ...(until !== undefined && { untilMs: parseMoment(until, 'until') }),
      }
      const { rows, hasMore } = await activities.list(contentsReaderOf(request), query)
      return {
        object: 'list' as const,
        data: rows.map(presentActivity),
        first_id: rows[0]?.id ?? null,
        last_id: rows.at(-1)?.id ?? null,
        has_more: hasMore,
      }
    })

    app.get('/activities/:activity_id', { schema: RETRIEVE, config: READ }, async (request) => {
      const { activity_id } = request.params
      const row = await activities.find(callerOf(request).organizationId, activity_id)
      if (row === undefined)
        throw failure.notFound(`No such activity: ${activity_id}`, { param: 'id' })
      return presentActivity(row)
    })
  }
}

function identify(activity: Activity, nowMs: number): NewActivity {
  const { id = timeOrderedId(OWN_ID_PREFIX, nowMs), ...rest } = activity
  return { ...rest, id, digest: digestOf(activity.sent) }
}

function presentActivity(row: ActivityRow) {
  return {
    id: row.id,
    object: 'activity' as const,
    created_at: unixSeconds(row.createdAt.getTime()),
    activity: row.activity,
  }
}

function actorOf(caller: Caller): string {
  return caller.userId === undefined ? `key:${caller.apiKeyId ?? ''}` : `user:${caller.userId}`
}

const WRITE = { scope: 'activities:write' } as const
const READ = { scope: 'activities:read', readsContents: true } as const
const TAGS = ['Activities']
const ACTIVITY = Type.Object({
  id: Type.String(),
  object: Type.Literal('activity'),
  created_at: Type.Integer({ description: 'The time of receipt in Unix seconds.' }),
  activity: Type.Record(Type.String(), Type.Unknown(), {
    description: 'The activity as it is stored.',
  }),
})
const LIST_OF_ACTIVITIES = Type.Object({ object: Type.Literal('list'), data: Type.Array(ACTIVITY) })
const RECORDED = Type.Union([ACTIVITY, LIST_OF_ACTIVITIES])
const NAME = Type.String({ minLength: 1, maxLength: 2000 })
const NULLABLE_ID = Type.Union([Type.String(), Type.Null()])
const REFERENCE = {
  anyOf: [{ type: ['string', 'null'], maxLength: 2000 }, { type: 'object' }],
  description: 'An id, or an object with an `id`, a `name` or a `type`.',
}
const ACTIVITY_BODY = {
  type: 'object',
  required: ['type'],
  properties: {
    id: {
      type: ['string', 'null'],
      minLength: 1,
      maxLength: 200,
      description: 'An id of your own; ids that begin with `act_` are reserved for the server.',
    },
    type: { type: 'string', minLength: 1, maxLength: 100, examples: ['Create'] },
    summary: { type: ['string', 'null'], maxLength: 2000 },
    published: { type: ['string', 'null'], format: 'date-time' },
    ...Object.fromEntries(REFERENCES.map((name) => [name, REFERENCE])),
  },
}
const ITEMS = { type: 'array', minItems: 1, maxItems: BATCH_MAX, items: ACTIVITY_BODY }
const BATCH_BODY = { type: 'object', required: ['activities'], properties: { activities: ITEMS } }
const COLLECTION_BODIES = [
  { names: ['Collection', 'CollectionPage'], field: 'items' },
  { names: ['OrderedCollection', 'OrderedCollectionPage'], field: 'orderedItems' },
].map(({ names, field }) => ({
  type: 'object',
  required: ['type', field],
  properties: { type: { type: 'string', enum: names }, [field]: ITEMS },
}))
const RECORD = {
  tags: TAGS,
  summary: 'Record one activity, or a batch as a whole',
  description:
    'One activity in the vocabulary of Activity Streams 2.0, `{"activities": […]}` with up to 1,000 activities, or a collection. Sending the same id with the same content again returns 200 with the stored record.',
  body: { anyOf: [ACTIVITY_BODY, BATCH_BODY, ...COLLECTION_BODIES] },
  response: { 200: RECORDED, 201: RECORDED },
}
const LIST = {
  tags: TAGS,
  summary: 'List the activities of the organization',
  querystring: Type.Object(
    {
      actor: Type.Optional(NAME),
      type: Type.Optional(NAME),
      object: Type.Optional(NAME),
      since: Type.Optional(
        Type.String({
          format: 'date-time',
          description: 'Only activities published at or after this time (RFC 3339).',
        }),
      ),
      until: Type.Optional(
        Type.String({
          format: 'date-time',
          description: 'Only activities published before this time (RFC 3339).',
        }),
      ),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
      order: Type.Optional(choice(['asc', 'desc'])),
      after: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
    },
    { additionalProperties: false },
  ),
  response: {
    200: Type.Object({
      ...LIST_OF_ACTIVITIES.properties,
      first_id: NULLABLE_ID,
      last_id: NULLABLE_ID,
      has_more: Type.Boolean(),
    }),
  },
}
const RETRIEVE = {
  tags: TAGS,
  summary: 'Retrieve an activity',
  params: Type.Object({ activity_id: Type.String({ minLength: 1, maxLength: 200 }) }),
  response: { 200: ACTIVITY },
}
