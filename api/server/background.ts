import type { FastifyInstance } from 'fastify'
import type { Redis } from 'ioredis'

import { runIdOf, tuningJobOf } from '#api/fine-tuning/create-job.ts'
import { TunedModels } from '#api/fine-tuning/tuned-models.ts'
import { TuningStore } from '#api/fine-tuning/tuning-store.ts'
import { BackgroundJobs } from '#api/jobs/background-jobs.ts'
import { EventLog } from '#api/jobs/event-log.ts'
import { JobRunner, type SendStored } from '#api/jobs/job-runner.ts'
import { JobStore, type JobSummary } from '#api/jobs/job-store.ts'
import { STORED_REQUEST_HEADER, StoredRequests } from '#api/jobs/stored-requests.ts'
import { AnswerStore } from '#api/stored/answer-store.ts'
import { ConversationStore } from '#api/stored/conversation-store.ts'
import type { JobUse } from '#api/v1/request-context.ts'
import { type EventType, eventIdOf, type NewEvent } from '#api/webhooks/event-types.ts'
import { Secrets } from '#api/webhooks/secrets.ts'
import { WebhookSender } from '#api/webhooks/webhook-sender.ts'
import { WebhookStore } from '#api/webhooks/webhook-store.ts'
import type { Catalogue } from '#shared/catalogue.ts'
import { systemClock } from '#shared/clock.ts'
import type { Config } from '#shared/config/config.ts'
import type { Database, Db } from '#shared/db/client.ts'
import { type TuningJobRow, tuningTables } from '#shared/db/schema/fine-tuning.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import { type EndpointRow, webhookTables } from '#shared/db/schema/webhooks.ts'
import type { Logger } from '#shared/logger.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'

/** Background jobs and stored answers of an API process. */
export interface Background {
  readonly jobs: JobStore
  readonly background: BackgroundJobs
  readonly tuning: TuningStore
  readonly tunedModels: TunedModels
  readonly answers: AnswerStore
  readonly conversations: ConversationStore
  readonly storedRequests: StoredRequests
  readonly webhooks: WebhookStore
  readonly secrets: Secrets
  /** Called when a delivery is due. */
  wakeSender(): void
  /** Announces events to webhooks. */
  announce(events: readonly NewEvent[]): Promise<void>
  /** Starts to run jobs through the routes of the application, and to deliver events. */
  start(
    app: FastifyInstance,
    hooks: {
      readonly noteUse: NoteUse
      /** Called for each endpoint that is disabled because its deliveries fail. */
      readonly onDisabled: (endpoint: EndpointRow) => void
    },
  ): void
  /** Stops claiming jobs and leaves running ones to other processes. */
  stop(): Promise<void>
}

type NoteUse = (organizationId: string, use: JobUse) => void

const STOP_GRACE_MS = 2000

/** Opens the background jobs of a database; none runs before `start`. */
export function openBackground(options: {
  readonly database: Database
  /** Queries of lists, which may lag slightly behind. */
  readonly lists: { readonly db: Db }
  readonly redis: Redis
  readonly cipher: ContentCipher | undefined
  readonly log: Logger
  readonly config: Pick<Config, 'database' | 'infra' | 'content'>
  readonly catalogue: Pick<Catalogue, 'find'>
}): Background {
  const { database, redis, cipher, log, config, catalogue } = options
  const { db } = database
  const lists = options.lists.db
  const clock = systemClock
  const { retentionDays, storedBytesMax, openJobsMax, openJobBytesMax } = config.content
  const { tablePrefix } = config.database
  const tables = jobTables(tablePrefix)
  const { bytesMax } = config.content.webhooks
  const webhooks = new WebhookStore(db, webhookTables(tablePrefix), { bytesMax })
  const secrets = new Secrets(cipher)
  const jobs = new JobStore({
    db,
    lists,
    tables,
    retentionDays,
    storedBytesMax,
    async announce(tx, ended) {
      for (const job of ended) await endTuning(tuning, job, tx)
      await webhooks.announce(tx, ended.flatMap(eventsOf))
      sender?.wake()
    },
  })
  const tuned = tuningTables(tablePrefix)
  const tuning = new TuningStore({
    db,
    lists,
    tables: tuned,
    async announce(tx, job) {
      await webhooks.announce(tx, [tuningEventOf(job)])
      sender?.wake()
    },
  })
  const events = new EventLog(redis, config.infra.redisPrefix, cipher)
  const storedRequests = new StoredRequests()
  let runner: JobRunner | undefined
  let sender: WebhookSender | undefined
  const wake = (): void => runner?.wake()
  return {
    jobs,
    tuning,
    storedRequests,
    webhooks,
    secrets,
    wakeSender: () => sender?.wake(),
    async announce(announced) {
      await webhooks.announce(db, announced)
      sender?.wake()
    },
    tunedModels: new TunedModels({
      db,
      tables: tuned,
      clock,
      findBase: (id) => catalogue.find(id),
    }),
    background: new BackgroundJobs({
      jobs,
      events,
      clock,
      cipher,
      openJobsMax,
      openJobBytesMax,
      wake,
    }),
    answers: new AnswerStore({ db, lists, tables, cipher, retentionDays, storedBytesMax }),
    conversations: new ConversationStore({ db, tables, cipher, retentionDays, storedBytesMax }),
    start(app, { noteUse, onDisabled }) {
      const send = sendThrough(app, storedRequests, noteUse)
      runner = new JobRunner({ jobs, events, cipher, log, send })
      const { allowsPrivateAddresses } = config.content.webhooks
      sender = new WebhookSender({
        webhooks,
        secrets,
        clock,
        log,
        allowsPrivateAddresses,
        onDisabled,
      })
    },
    async stop() {
      await runner?.stop(STOP_GRACE_MS)
      await sender?.stop()
    },
  }
}

/** Ends the fine-tuning job whose run has ended, unless the run did so itself. */
async function endTuning(
  tuning: TuningStore,
  { id, endpoint, state, error }: JobSummary,
  tx: Db,
): Promise<void> {
  const jobId = tuningJobOf(endpoint)
  if (jobId === undefined || state === 'completed') return
  const reason = error === null ? null : { ...error, param: null }
  await tuning.settleRun({ id, state, error: reason }, { id: jobId, runIdOf }, tx)
}

function tuningEventOf(job: TuningJobRow): NewEvent {
  const { id, organizationId, status } = job
  const type = `fine_tuning.job.${status}` as EventType
  const endedAtMs = (job.finishedAt ?? job.createdAt).getTime()
  return { organizationId, type, id: eventIdOf(endedAtMs, `${id} ${type}`), data: { id } }
}

/** The events of a job that has ended. */
function eventsOf(job: JobSummary): NewEvent[] {
  const { id, organizationId, state, responseId, endpoint } = job
  if (state === 'queued' || state === 'in_progress') return []
  const announced: NewEvent[] = []
  const add = (type: EventType, data: NewEvent['data']): void => {
    const eventId = eventIdOf((job.endedAt ?? job.createdAt).getTime(), `${id} ${type}`)
    announced.push({ organizationId, id: eventId, type, data })
  }
  add(`job.${state}`, { id, endpoint })
  if (responseId !== null) {
    add(`response.${state === 'expired' ? 'failed' : state}`, { id: responseId })
  }
  return announced
}

/** Sends stored requests to the application within this process. */
function sendThrough(
  app: FastifyInstance,
  storedRequests: StoredRequests,
  noteUse: NoteUse,
): SendStored {
  return async (job, body, run) => {
    const { organizationId, apiKeyId, userId, modelIds } = job
    const token = storedRequests.add({
      id: job.id,
      createdAtMs: job.createdAt.getTime(),
      ...run,
      caller: {
        organizationId,
        modelIds,
        scopes: null,
        expiresAtMs: null,
        ...(apiKeyId !== null && { apiKeyId }),
        ...(userId !== null && { userId }),
      },
      noteUse: (use) => noteUse(organizationId, use),
    })
    const answer = await app.inject({
      method: 'POST',
      url: job.endpoint,
      headers: { 'content-type': job.contentType, [STORED_REQUEST_HEADER]: token },
      payload: body,
      payloadAsStream: true,
    })
    const headers = Object.entries(answer.headers).map(([name, value]) => [name, String(value)])
    return {
      status: answer.statusCode,
      headers: Object.fromEntries(headers),
      body: answer.stream(),
    }
  }
}
