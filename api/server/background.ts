import type { FastifyInstance } from 'fastify'
import type { Redis } from 'ioredis'

import { BackgroundJobs } from '#api/jobs/background-jobs.ts'
import { EventLog } from '#api/jobs/event-log.ts'
import { JobRunner, type SendStored } from '#api/jobs/job-runner.ts'
import { JobStore, type JobSummary } from '#api/jobs/job-store.ts'
import { STORED_REQUEST_HEADER, StoredRequests } from '#api/jobs/stored-requests.ts'
import { AnswerStore } from '#api/stored/answer-store.ts'
import { ConversationStore } from '#api/stored/conversation-store.ts'
import { derivedId } from '#api/v1/request-context.ts'
import type { EventType, NewEvent } from '#api/webhooks/event-types.ts'
import { Secrets } from '#api/webhooks/secrets.ts'
import { WebhookSender } from '#api/webhooks/webhook-sender.ts'
import { WebhookStore } from '#api/webhooks/webhook-store.ts'
import { systemClock } from '#shared/clock.ts'
import type { Config } from '#shared/config/config.ts'
import type { Database } from '#shared/db/client.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import { webhookTables } from '#shared/db/schema/webhooks.ts'
import type { Logger } from '#shared/logger.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'

/** Background jobs and stored answers of an API process. */
export interface Background {
  readonly jobs: JobStore
  readonly background: BackgroundJobs
  readonly answers: AnswerStore
  readonly conversations: ConversationStore
  readonly storedRequests: StoredRequests
  readonly webhooks: WebhookStore
  readonly secrets: Secrets
  /** Called when a delivery is due. */
  wakeSender(): void
  /** Announces events to webhooks. */
  announce(events: readonly NewEvent[]): Promise<void>
  /** Starts to run jobs through the routes of the application. */
  start(app: FastifyInstance, noteTokens: (organizationId: string, tokens: number) => void): void
  /** Stops claiming jobs and leaves running ones to other processes. */
  stop(): Promise<void>
}

const STOP_GRACE_MS = 2000

/** Opens the background jobs of a database; none runs before `start`. */
export function openBackground(options: {
  readonly database: Database
  readonly redis: Redis
  readonly cipher: ContentCipher | undefined
  readonly log: Logger
  readonly config: Pick<Config, 'database' | 'infra' | 'content'>
}): Background {
  const { database, redis, cipher, log, config } = options
  const { db } = database
  const clock = systemClock
  const { retentionDays, openJobsMax } = config.content
  const { tablePrefix } = config.database
  const tables = jobTables(tablePrefix)
  const webhooks = new WebhookStore(db, webhookTables(tablePrefix))
  const secrets = new Secrets(cipher)
  const jobs = new JobStore({
    ...{ db, tables, retentionDays },
    async announce(tx, ended) {
      await webhooks.announce(tx, ended.flatMap(eventsOf))
      sender?.wake()
    },
  })
  const events = new EventLog(redis, config.infra.redisPrefix, cipher)
  const storedRequests = new StoredRequests()
  let runner: JobRunner | undefined
  let sender: WebhookSender | undefined
  const wake = (): void => runner?.wake()
  return {
    ...{ jobs, storedRequests, webhooks, secrets },
    wakeSender: () => sender?.wake(),
    async announce(announced) {
      await webhooks.announce(db, announced)
      sender?.wake()
    },
    background: new BackgroundJobs({ jobs, events, clock, cipher, openJobsMax, wake }),
    answers: new AnswerStore({ db, tables, cipher, retentionDays }),
    conversations: new ConversationStore({ db, tables, cipher, retentionDays }),
    start(app, noteTokens) {
      const send = sendThrough(app, storedRequests, noteTokens)
      runner = new JobRunner({ jobs, events, cipher, log, send })
      const { allowsPrivateAddresses } = config.content.webhooks
      sender = new WebhookSender({ webhooks, secrets, clock, log, allowsPrivateAddresses })
    },
    async stop() {
      await runner?.stop(STOP_GRACE_MS)
      await sender?.stop()
    },
  }
}

/** The events of a job that has ended. */
function eventsOf({ id, organizationId, state, responseId, endpoint }: JobSummary): NewEvent[] {
  if (state === 'queued' || state === 'in_progress') return []
  const announced: NewEvent[] = []
  const add = (type: EventType, data: NewEvent['data']): void => {
    announced.push({ organizationId, id: derivedId('evt_', `${id} ${type}`), type, data })
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
  noteTokens: (organizationId: string, tokens: number) => void,
): SendStored {
  return async (job, body, signal) => {
    const { organizationId, apiKeyId, userId, modelIds } = job
    const token = storedRequests.add({
      ...{ id: job.id, createdAtMs: job.createdAt.getTime(), signal },
      caller: {
        ...{ organizationId, modelIds, scopes: null, expiresAtMs: null },
        ...(apiKeyId !== null && { apiKeyId }),
        ...(userId !== null && { userId }),
      },
      noteTokens: (tokens) => noteTokens(organizationId, tokens),
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
