import type { FastifyInstance } from 'fastify'
import type { Redis } from 'ioredis'

import { BackgroundJobs } from '#api/jobs/background-jobs.ts'
import { EventLog } from '#api/jobs/event-log.ts'
import { JobRunner, type SendStored } from '#api/jobs/job-runner.ts'
import { JobStore } from '#api/jobs/job-store.ts'
import { STORED_REQUEST_HEADER, StoredRequests } from '#api/jobs/stored-requests.ts'
import { AnswerStore } from '#api/stored/answer-store.ts'
import { ConversationStore } from '#api/stored/conversation-store.ts'
import { systemClock } from '#shared/clock.ts'
import type { Config } from '#shared/config/config.ts'
import type { Database } from '#shared/db/client.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import type { Logger } from '#shared/logger.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'

/** Background jobs and stored answers of an API process. */
export interface Background {
  readonly jobs: JobStore
  readonly background: BackgroundJobs
  readonly answers: AnswerStore
  readonly conversations: ConversationStore
  readonly storedRequests: StoredRequests
  /** Runs jobs through the routes of the application, from now on. */
  start(app: FastifyInstance, noteTokens: (organizationId: string, tokens: number) => void): void
  /** Takes no more jobs, and leaves those that run to other processes. */
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
  const tables = jobTables(config.database.tablePrefix)
  const jobs = new JobStore(db, tables, retentionDays)
  const events = new EventLog(redis, config.infra.redisPrefix, cipher)
  const storedRequests = new StoredRequests()
  let runner: JobRunner | undefined
  const wake = (): void => runner?.wake()
  return {
    ...{ jobs, storedRequests },
    background: new BackgroundJobs({ jobs, events, clock, cipher, openJobsMax, wake }),
    answers: new AnswerStore({ db, tables, cipher, retentionDays }),
    conversations: new ConversationStore({ db, tables, cipher, retentionDays }),
    start(app, noteTokens) {
      const send = sendThrough(app, storedRequests, noteTokens)
      runner = new JobRunner({ jobs, events, cipher, log, send })
    },
    stop: async () => runner?.stop(STOP_GRACE_MS),
  }
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
