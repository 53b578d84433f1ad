import type { Pool } from 'pg'

import type { Batches } from '#api/batches/batch-store.ts'
import { bodyOf, type ConsoleArea, type ConsoleCall } from '#api/console/api.ts'
import { listQuery, readPage, TEXT_FILTER } from '#api/console/lists.ts'
import {
  cancelTuningJob,
  pauseTuningJob,
  type ResumeServices,
  resumeTuningJob,
} from '#api/fine-tuning/changes.ts'
import { prioritize } from '#api/jobs/background-jobs.ts'
import type { WebhookStore } from '#api/webhooks/webhook-store.ts'
import type { TuningJobRow } from '#shared/db/schema/fine-tuning.ts'
import { JOB_PRIORITIES, type JobPriority } from '#shared/db/schema/jobs.ts'
import { failure } from '#shared/errors.ts'

interface WorkServices extends ResumeServices {
  readonly pool: Pool
  readonly prefix: string
  readonly batches: Batches
  readonly webhooks: WebhookStore
  /** Called when a delivery is due. */
  wakeSender(): void
}

interface WorkFilter {
  readonly organization?: string
  readonly state?: string
  readonly page?: number
}

interface OneOf {
  readonly organization: string
  readonly id: string
}

/**
 * Background jobs, batches, fine-tuning, files and webhooks of all organizations, without content.
 */
export function workArea(services: WorkServices): ConsoleArea {
  const { jobs, batches } = services
  const query = listQuery({ organization: TEXT_FILTER, state: TEXT_FILTER })
  const read =
    (text: string) =>
    ({ query: { organization, state, page } }: ConsoleCall<object, object, WorkFilter>) =>
      readPage(services.pool, { text, page, values: [organization, state] })
  const texts = listTexts(services.prefix)
  const operator = { method: 'POST', role: 'operator' } as const
  return {
    reads: [
      { path: '/jobs', query, handle: read(texts.jobs) },
      { path: '/batches', query, handle: read(texts.batches) },
      { path: '/fine-tuning', query, handle: read(texts.tuning) },
      { path: '/files', query, handle: read(texts.files) },
      { path: '/webhooks', query, handle: read(texts.webhooks) },
      {
        path: '/webhooks/:endpoint/deliveries',
        query: listQuery(),
        handle: ({
          params,
          query: { page },
        }: ConsoleCall<{ endpoint: string }, object, WorkFilter>) =>
          readPage(services.pool, { text: texts.deliveries, page, values: [params.endpoint] }),
      },
    ],
    actions: [
      {
        ...operator,
        path: '/jobs/:organization/:id/cancel',
        operation: 'job.cancel',
        async handle({ params: { organization, id } }: ConsoleCall<OneOf>) {
          if ((await jobs.cancel(organization, id)) === undefined) throw notFound('job', id)
        },
      },
      {
        ...operator,
        path: '/jobs/:organization/:id/priority',
        operation: 'job.prioritize',
        body: bodyOf({ priority: { type: 'string', enum: JOB_PRIORITIES } }, ['priority']),
        detail: (body: { readonly priority: JobPriority }) => body,
        async handle({ params, body }: ConsoleCall<OneOf, { priority: JobPriority }>) {
          const { organization: organizationId, id } = params
          await prioritize(jobs, { organizationId, id }, body.priority)
        },
      },
      {
        ...operator,
        path: '/batches/:organization/:id/cancel',
        operation: 'batch.cancel',
        async handle({ params: { organization, id } }: ConsoleCall<OneOf>) {
          if ((await batches.cancel(organization, id)) === undefined) throw notFound('batch', id)
        },
      },
      ...tuningActions(services),
      ...webhookActions(services),
    ],
  }
}

function tuningActions(services: WorkServices): ConsoleArea['actions'] {
  const changes = {
    cancel: cancelTuningJob,
    pause: pauseTuningJob,
    // The run belongs to the creator of the job, not to the operator.
    resume: (_: WorkServices, job: TuningJobRow) => resumeTuningJob(job, services, job),
  }
  return Object.entries(changes).map(([name, change]) => ({
    method: 'POST',
    role: 'operator',
    path: `/fine-tuning/:organization/:id/${name}`,
    operation: `fine_tuning.${name}`,
    async handle({ params: { organization, id } }: ConsoleCall<OneOf>) {
      const job = await services.tuning.find(organization, id)
      if (job === undefined) throw notFound('fine-tuning job', id)
      await change(services, job)
    },
  }))
}

function webhookActions({ webhooks, wakeSender }: WorkServices): ConsoleArea['actions'] {
  return [
    {
      method: 'POST',
      role: 'operator',
      operation: 'webhook.redeliver',
      path: '/webhooks/:endpoint/deliveries/:delivery/redeliver',
      async handle({ params }: ConsoleCall<{ endpoint: string; delivery: string }>) {
        const { endpoint, delivery } = params
        const row = await webhooks.redeliver(endpoint, delivery)
        if (row === undefined) throw notFound('delivery', delivery)
        wakeSender()
      },
    },
    {
      method: 'PATCH',
      role: 'operator',
      operation: 'webhook.update',
      path: '/webhooks/:organization/:id',
      body: bodyOf({ disabled: { type: 'boolean' } }, ['disabled']),
      detail: (body: { readonly disabled: boolean }) => body,
      async handle({ params, body }: ConsoleCall<OneOf, { disabled: boolean }>) {
        const changed = await webhooks.updateEndpoint(params.organization, params.id, {
          ...(body.disabled
            ? { disabledAt: new Date(), disabledReason: 'an operator of the installation' }
            : { disabledAt: null, disabledReason: null, failingSince: null }),
        })
        if (changed === undefined) throw notFound('webhook endpoint', params.id)
        wakeSender()
      },
    },
  ]
}

/** Only metadata: none of these columns contains text of users or models. */
function listTexts(prefix: string) {
  const organization = `join ${prefix}organizations o on o.id = x.organization_id`
  const isMeant = (state: string): string =>
    `($1::text is null or x.organization_id = $1) and ($2::text is null or ${state} = $2)`
  return {
    jobs: `select x.id, x.organization_id, o.name as organization, x.endpoint, x.model, x.state,
        x.priority, x.attempts, x.created_at, x.started_at, x.ended_at, x.expires_at,
        x.cancelled_at, x.error ->> 'code' as error
      from ${prefix}jobs x ${organization} where ${isMeant('x.state')}
      order by x.created_at desc, x.id`,
    batches: `select x.id, x.organization_id, o.name as organization, x.endpoint, x.status as state,
        x.total, x.completed, x.failed, x.created_at, x.expires_at, x.input_file_id
      from ${prefix}batches x ${organization} where ${isMeant('x.status')}
      order by x.created_at desc, x.id`,
    tuning: `select x.id, x.organization_id, o.name as organization, x.model, x.status as state,
        x.fine_tuned_model, x.trained_tokens::float8 as trained_tokens, x.created_at, x.finished_at,
        x.error ->> 'code' as error, (s.data ->> 'step')::int as step,
        (s.data ->> 'total_steps')::int as steps, (s.data ->> 'train_loss')::float8 as loss
      from ${prefix}fine_tuning_jobs x ${organization}
      left join lateral (select e.data from ${prefix}fine_tuning_events e
        where e.job_id = x.id and e.type = 'metrics' order by e.position desc limit 1) s on true
      where ${isMeant('x.status')}
      order by x.created_at desc, x.id`,
    files: `select x.id, x.organization_id, o.name as organization, x.purpose, x.filename,
        x.bytes::float8 as bytes, x.created_at, x.expires_at
      from ${prefix}files x ${organization} where ${isMeant('x.purpose')}
      order by x.created_at desc, x.id`,
    webhooks: `select x.id, x.organization_id, o.name as organization, x.url, x.events,
        x.created_at, x.disabled_at, x.disabled_reason, x.failing_since,
        (select count(*)::int from ${prefix}webhook_deliveries d
          where d.endpoint_id = x.id and d.state = 'pending') as pending
      from ${prefix}webhook_endpoints x ${organization}
      where ${isMeant("case when x.disabled_at is null then 'enabled' else 'disabled' end")}
      order by x.created_at desc, x.id`,
    deliveries: `select d.id, e.type, d.state, d.attempts, d.last_status, d.last_error, d.created_at,
        d.next_attempt_at, d.delivered_at
      from ${prefix}webhook_deliveries d join ${prefix}webhook_events e on e.id = d.event_id
      where d.endpoint_id = $1 order by d.created_at desc, d.id desc`,
  }
}

function notFound(what: string, id: string): Error {
  return failure.notFound(`No such ${what}: ${id.slice(0, 64)}`, { param: 'id' })
}
