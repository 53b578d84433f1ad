import { type QueueKind, queueName } from '#shared/contracts/job.ts'

/** The names of all Redis keys, below one prefix. */
export interface QueueKeys {
  /** The stream on which a process receives replies; also its `replyTo`. */
  replyStream(instanceId: string): string
  /** Exists as long as the process that reads the stream is alive. */
  owner(replyTo: string): string
  /** Sorted set of worker ids by their last heartbeat. */
  readonly workers: string
  worker(workerId: string): string
  /**
   * The replies to one job that may outlive its owner. The owner creates the stream, never a
   * worker.
   */
  jobReplies(jobId: string): string
  readonly cancelChannel: string
  cancelled(queuedId: string): string
  /** The claim of the first run of a queued job, so that a second delivery does not run. */
  claim(queuedId: string): string
  /** The tickets of the organizations in one queue. */
  tickets(kind: QueueKind, modelId: string): string
  /** Jobs that repeatedly killed their workers, without their inputs. */
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
 * The name of a reply stream whose owner reads encrypted replies. Owners of older releases do not.
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
 * Builds the key names of one installation. A prefix in braces is a hash tag of a Redis Cluster.
 * Every queue then has its own tag, so that queues are on different shards; all other keys share
 * the slot of the prefix.
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
