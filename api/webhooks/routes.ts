import type { FastifyInstance, FastifyPluginAsync, FastifyRequest } from 'fastify'
import type { Static } from 'typebox'

import { callerOf } from '#api/v1/request-context.ts'
import { type Clock, unixSeconds } from '#shared/clock.ts'
import type { DeliveryRow, EndpointRow } from '#shared/db/schema/webhooks.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { randomId, timeOrderedId } from '#shared/ids.ts'
import { isPrivateLiteral } from '#shared/net/guarded-fetch.ts'
import { isStorable } from '#shared/storable.ts'

import * as schemas from './schemas.ts'
import type { Secrets } from './secrets.ts'
import type { WebhookStore } from './webhook-store.ts'

const LIST_LIMIT = 20
const PATH = '/webhook_endpoints'

interface WebhookServices {
  readonly webhooks: WebhookStore
  readonly secrets: Secrets
  readonly clock: Clock
  /** Whether endpoints may have addresses outside the public internet. */
  readonly allowsPrivateAddresses: boolean
  /** Called when a delivery is due. */
  readonly wake: () => void
}

/** `/webhook_endpoints`: the receivers of an organization's events, and their deliveries. */
export function webhooksPlugin(services: WebhookServices): FastifyPluginAsync {
  return async (app) => {
    registerEndpoints(app, services)
    registerDeliveries(app, services)
  }
}

function registerEndpoints(app: FastifyInstance, services: WebhookServices): void {
  const { webhooks, secrets, clock } = services
  app.post(PATH, schemas.CREATE, async (request) => {
    const {
      url,
      events = null,
      description = null,
    } = request.body as Static<typeof schemas.CREATE_BODY>
    const { organizationId } = callerOf(request)
    const id = randomId('whe_')
    const made = await secrets.renew({ id }, clock.now())
    checkUrl(url, services)
    const endpoint = await webhooks.createEndpoint({
      id,
      organizationId,
      url,
      events,
      description,
      secrets: made.secrets,
    })
    if (endpoint === undefined) throw tooManyEndpoints()
    return { ...presentEndpoint(endpoint), secret: made.secret }
  })

  app.get(PATH, schemas.LIST, async (request) => {
    const rows = await webhooks.listEndpoints(callerOf(request).organizationId)
    return { object: 'list' as const, data: rows.map(presentEndpoint), has_more: false }
  })

  app.get(`${PATH}/:endpoint_id`, schemas.RETRIEVE, async (request) =>
    presentEndpoint(await find(webhooks, request)),
  )

  app.patch(`${PATH}/:endpoint_id`, schemas.UPDATE, async (request) => {
    const { disabled, ...fields } = request.body as Static<typeof schemas.UPDATE_BODY>
    if (fields.url !== undefined) checkUrl(fields.url, services)
    const { id, organizationId } = await find(webhooks, request)
    const changed = await webhooks.updateEndpoint(organizationId, id, {
      ...fields,
      ...(disabled === true && { disabledAt: new Date(clock.now()), disabledReason: 'request' }),
      ...(disabled === false && { disabledAt: null, disabledReason: null, failingSince: null }),
    })
    if (changed === undefined) throw noSuchEndpoint(id)
    services.wake()
    return presentEndpoint(changed)
  })

  app.delete(`${PATH}/:endpoint_id`, schemas.DELETE, async (request) => {
    const { endpoint_id: id } = request.params as Static<typeof schemas.ENDPOINT_ID>
    if (!(await webhooks.removeEndpoint(callerOf(request).organizationId, id))) {
      throw noSuchEndpoint(id)
    }
    return { id, object: 'webhook_endpoint' as const, deleted: true as const }
  })

  app.post(`${PATH}/:endpoint_id/rotate`, schemas.ROTATE, async (request) => {
    const endpoint = await find(webhooks, request)
    const { id, organizationId } = endpoint
    const made = await secrets.renew(endpoint, clock.now())
    const changed = await webhooks.updateEndpoint(organizationId, id, { secrets: made.secrets })
    if (changed === undefined) throw noSuchEndpoint(id)
    return { ...presentEndpoint(changed), secret: made.secret }
  })
}

function tooManyEndpoints(): ServiceError {
  return failure.invalidRequest('Your organization has 50 webhook endpoints, the most allowed.', {
    code: 'webhook_limit_exceeded',
  })
}

function registerDeliveries(app: FastifyInstance, services: WebhookServices): void {
  const { webhooks, clock, wake } = services
  app.post(`${PATH}/:endpoint_id/test`, schemas.TEST, async (request) => {
    const endpoint = await find(webhooks, request)
    const event = {
      id: timeOrderedId('evt_', clock.now()),
      organizationId: endpoint.organizationId,
      type: 'webhook.test' as const,
      data: { id: endpoint.id },
    }
    const row = await webhooks.sendTo(endpoint, event, randomId('whd_'))
    wake()
    return presentDelivery({ ...row, type: event.type })
  })

  app.get(`${PATH}/:endpoint_id/deliveries`, schemas.LIST_DELIVERIES, async (request) => {
    const { id } = await find(webhooks, request)
    const { limit = LIST_LIMIT, after } = request.query as Static<typeof schemas.LIST_QUERY>
    const page = { limit, ...(after !== undefined && { after }) }
    const { rows, hasMore } = await webhooks.listDeliveries(id, page)
    return { object: 'list' as const, data: rows.map(presentDelivery), has_more: hasMore }
  })

  const path = `${PATH}/:endpoint_id/deliveries/:delivery_id/redeliver`
  app.post(path, schemas.REDELIVER, async (request) => {
    const { id } = await find(webhooks, request)
    const { delivery_id: deliveryId } = request.params as Static<typeof schemas.DELIVERY_ID>
    const row = await webhooks.redeliver(id, deliveryId)
    if (row === undefined) {
      throw failure.notFound(`No delivery found with id '${deliveryId.slice(0, 100)}'.`, {
        param: 'delivery_id',
      })
    }
    wake()
    return presentDelivery(row)
  })
}

async function find(webhooks: WebhookStore, request: FastifyRequest): Promise<EndpointRow> {
  const { endpoint_id: id } = request.params as Static<typeof schemas.ENDPOINT_ID>
  const found = await webhooks.findEndpoint(callerOf(request).organizationId, id)
  if (found === undefined) throw noSuchEndpoint(id)
  return found
}

function checkUrl(
  url: string,
  { allowsPrivateAddresses }: Pick<WebhookServices, 'allowsPrivateAddresses'>,
): void {
  const parsed = URL.parse(url)
  const isUsable = parsed !== null && parsed.username === '' && parsed.password === ''
  if (isUsable && isStorable(url)) {
    // Names are resolved, and their addresses checked, at each delivery.
    if (allowsPrivateAddresses || !isPrivateLiteral(parsed)) return
    throw failure.invalidRequest("Invalid 'url': expected an address of the public internet.", {
      param: 'url',
      code: 'invalid_value',
    })
  }
  throw failure.invalidRequest("Invalid 'url': expected an http or https address.", {
    param: 'url',
    code: 'invalid_value',
  })
}

function presentEndpoint(row: EndpointRow) {
  return {
    id: row.id,
    object: 'webhook_endpoint' as const,
    url: row.url,
    description: row.description,
    events: row.events,
    created_at: unixSeconds(row.createdAt.getTime()),
    disabled_at: seconds(row.disabledAt),
    disabled_reason: row.disabledReason,
    failing_since: seconds(row.failingSince),
  }
}

function presentDelivery(row: DeliveryRow & { readonly type: string }) {
  return {
    id: row.id,
    object: 'webhook_delivery' as const,
    event_id: row.eventId,
    type: row.type,
    status: row.state,
    attempts: row.attempts,
    last_status: row.lastStatus,
    last_error: row.lastError,
    created_at: unixSeconds(row.createdAt.getTime()),
    next_attempt_at: row.state === 'pending' ? seconds(row.nextAttemptAt) : null,
    delivered_at: seconds(row.deliveredAt),
  }
}

function seconds(moment: Date | null): number | null {
  return moment === null ? null : unixSeconds(moment.getTime())
}

function noSuchEndpoint(id: string): ServiceError {
  return failure.notFound(`No webhook endpoint found with id '${id.slice(0, 100)}'.`, {
    param: 'endpoint_id',
  })
}
