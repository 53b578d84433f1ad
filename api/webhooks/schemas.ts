import { DELIVERY_STATES } from '#shared/db/schema/webhooks.ts'
import { Type } from '#shared/schema-types.ts'

import { EVENT_TYPES } from './event-types.ts'

const TAGS = ['Webhooks']
const SECURITY = [{ apiKey: [] }]
const NAME = Type.String({ minLength: 1, maxLength: 200 })
/** The path parameter. */
export const ENDPOINT_ID = Type.Object({ endpoint_id: NAME })
/** The path parameters of a delivery. */
export const DELIVERY_ID = Type.Object({ endpoint_id: NAME, delivery_id: NAME })

const URL_FIELD = Type.String({
  maxLength: 2048,
  pattern: '^https?://[^\\s]+$',
  description: 'The URL that events are posted to.',
})
const EVENTS_FIELD = Type.Optional(
  Type.Union([Type.Array(Type.Enum(EVENT_TYPES), { minItems: 1, maxItems: 50 }), Type.Null()], {
    description: 'The event types that are delivered; all if absent.',
  }),
)
const DESCRIPTION_FIELD = Type.Optional(
  Type.Union([Type.String({ maxLength: 200, pattern: '^[^\\u0000]*$' }), Type.Null()]),
)

/** The body of `POST /webhook_endpoints`. */
export const CREATE_BODY = Type.Object(
  { url: URL_FIELD, events: EVENTS_FIELD, description: DESCRIPTION_FIELD },
  { additionalProperties: false },
)
/** The body of `PATCH /webhook_endpoints/{endpoint_id}`. */
export const UPDATE_BODY = Type.Object(
  {
    url: Type.Optional(URL_FIELD),
    events: EVENTS_FIELD,
    description: DESCRIPTION_FIELD,
    disabled: Type.Optional(Type.Boolean({ description: 'Whether deliveries are disabled.' })),
  },
  { additionalProperties: false },
)
/** The query of `GET /webhook_endpoints/{endpoint_id}/deliveries`. */
export const LIST_QUERY = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
    after: Type.Optional(Type.String({ maxLength: 200 })),
  },
  { additionalProperties: false },
)

const STRING_OR_NULL = Type.Union([Type.String(), Type.Null()])
const TIME = Type.Union([Type.Integer(), Type.Null()])
const ENDPOINT = Type.Object({
  id: Type.String(),
  object: Type.Literal('webhook_endpoint'),
  url: Type.String(),
  description: STRING_OR_NULL,
  events: Type.Union([Type.Array(Type.String()), Type.Null()]),
  created_at: Type.Integer(),
  disabled_at: TIME,
  disabled_reason: STRING_OR_NULL,
  failing_since: TIME,
  secret: Type.Optional(
    Type.String({
      description: 'The signing secret; shown only once, when the webhook is created.',
    }),
  ),
})
const DELIVERY = Type.Object({
  id: Type.String(),
  object: Type.Literal('webhook_delivery'),
  event_id: Type.String(),
  type: Type.String(),
  status: Type.Enum(DELIVERY_STATES),
  attempts: Type.Integer(),
  last_status: TIME,
  last_error: STRING_OR_NULL,
  created_at: Type.Integer(),
  next_attempt_at: TIME,
  delivered_at: TIME,
})
const listOf = (items: typeof ENDPOINT | typeof DELIVERY) =>
  Type.Object({
    object: Type.Literal('list'),
    data: Type.Array(items),
    has_more: Type.Boolean(),
  })

interface Described {
  readonly config: { readonly scope: 'webhooks' }
  readonly schema: object
}

const described = (
  operationId: string,
  summary: string,
  answer: object,
  parts: object = {},
): Described => ({
  config: { scope: 'webhooks' },
  schema: {
    operationId,
    summary,
    tags: TAGS,
    security: SECURITY,
    ...parts,
    response: { 200: answer },
  },
})
const ONE = { params: ENDPOINT_ID }

/** `POST /webhook_endpoints`. */
export const CREATE = described('createWebhookEndpoint', 'Add a webhook endpoint', ENDPOINT, {
  body: CREATE_BODY,
})
/** `GET /webhook_endpoints`. */
export const LIST = described('listWebhookEndpoints', 'List webhook endpoints', listOf(ENDPOINT))
/** `GET /webhook_endpoints/{endpoint_id}`. */
export const RETRIEVE = described('retrieveWebhookEndpoint', 'Show an endpoint', ENDPOINT, ONE)
/** `PATCH /webhook_endpoints/{endpoint_id}`. */
export const UPDATE = described('updateWebhookEndpoint', 'Change an endpoint', ENDPOINT, {
  ...ONE,
  body: UPDATE_BODY,
})
/** `DELETE /webhook_endpoints/{endpoint_id}`. */
export const DELETE = described(
  'deleteWebhookEndpoint',
  'Delete an endpoint',
  Type.Object({
    id: Type.String(),
    object: Type.Literal('webhook_endpoint'),
    deleted: Type.Literal(true),
  }),
  ONE,
)
/** `POST /webhook_endpoints/{endpoint_id}/rotate`. */
export const ROTATE = described(
  'rotateWebhookSecret',
  'Make a new signing secret; the old one is valid for another day',
  ENDPOINT,
  ONE,
)
/** `POST /webhook_endpoints/{endpoint_id}/test`. */
export const TEST = described('testWebhookEndpoint', 'Send a test event', DELIVERY, ONE)
/** `GET /webhook_endpoints/{endpoint_id}/deliveries`. */
export const LIST_DELIVERIES = described(
  'listWebhookDeliveries',
  'List the deliveries of an endpoint',
  listOf(DELIVERY),
  { ...ONE, querystring: LIST_QUERY },
)
/** `POST /webhook_endpoints/{endpoint_id}/deliveries/{delivery_id}/redeliver`. */
export const REDELIVER = described('redeliverWebhook', 'Deliver an event again', DELIVERY, {
  params: DELIVERY_ID,
})
