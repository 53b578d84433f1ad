import { type QueueKind, queueName } from '#shared/contracts/job.ts'

/** The names of all Redis keys, below one prefix. */
export interface QueueKeys {
  /** The stream on which a process receives replies; also its `replyTo`. */
  replyStream(instanceId: string): string
  /** Alive as long as the process that reads the stream. */
  owner(replyTo: string): string
  /** Sorted set of worker ids by their last heartbeat. */
  readonly workers: string
  worker(workerId: string): string
  /** The replies to one job that may outlive its owner; made by the owner, never by a worker. */
  jobReplies(jobId: string): string
  readonly cancelChannel: string
  cancelled(queuedId: string): string
  /** Taken by the first run of a queued job, so that a second delivery does not run. */
  claim(queuedId: string): string
  /** Turns of the organizations in one queue. */
  tickets(kind: QueueKind, modelId: string): string
  /** Jobs that kept killing their workers, without their inputs. */
  readonly deadJobs: string
  /** The encrypted input of such a job. */
  deadInput(jobId: string): string
  /** Hash of the models that operators have disabled, by id. */
  readonly disabledModels: string
  /** Hash of the models that operators have added, by id. */
  readonly addedModels: string
  /** The prefix of BullMQ's keys of a queue. */
  bullPrefix(kind: QueueKind, modelId: string): string
  /** A key of BullMQ's own. */
  bull(kind: QueueKind, modelId: string, part: string): string
}

const JOB_REPLIES = ':replies-of-job:'

const ENCRYPTED = ':encrypted'

/**
 * The reply stream's name when its owner reads encrypted replies; owners of older releases do not.
 */
export function encryptedStream(replyTo: string): string {
  return `${replyTo}${ENCRYPTED}`
}

/** Whether the owner of a reply stream reads encrypted replies. */
export function readsEncrypted(replyTo: string): boolean {
  return replyTo.endsWith(ENCRYPTED)
}

/** Whether a reply stream belongs to one job instead of a process. */
export function isJobStream(replyTo: string): boolean {
  return replyTo.includes(JOB_REPLIES)
}

/**
 * Builds the key names of one installation. A prefix in braces is a hash tag of a Redis Cluster:
 * then every queue has a tag of its own, so that queues are on different shards, and all other keys
 * share the slot of the prefix.
 */
export function queueKeys(prefix: string): QueueKeys {
  const tag = /^\{(.+)\}$/.exec(prefix)?.[1]
  const bullPrefix = (kind: QueueKind, modelId: string): string =>
    tag === undefined ? prefix : `{${tag}:${queueName(kind, modelId)}}`
  return {
    replyStream: (instanceId) => `${prefix}:replies:${instanceId}`,
    owner: (replyTo) => `${replyTo}:owner`,
    workers: `${prefix}:workers`,
    worker: (workerId) => `${prefix}:worker:${workerId}`,
    jobReplies: (jobId) => `${prefix}${JOB_REPLIES}${jobId}`,
    cancelChannel: `${prefix}:cancel`,
    cancelled: (queuedId) => `${prefix}:cancelled:${queuedId}`,
    claim: (queuedId) => `${prefix}:claim:${queuedId}`,
    tickets: (kind, modelId) => `${bullPrefix(kind, modelId)}:turns:${queueName(kind, modelId)}`,
    deadJobs: `${prefix}:dead-jobs`,
    deadInput: (jobId) => `${prefix}:dead-input:${jobId}`,
    disabledModels: `${prefix}:disabled-models`,
    addedModels: `${prefix}:added-models`,
    bullPrefix,
    bull: (kind, modelId, part) =>
      `${bullPrefix(kind, modelId)}:${queueName(kind, modelId)}:${part}`,
  }
}
