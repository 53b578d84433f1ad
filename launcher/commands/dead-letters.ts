import { JobQueues } from '#api/jobs/job-queues.ts'
import { retryDeadLetter } from '#api/jobs/retry-dead-letter.ts'
import { type Arguments, UsageError } from '#launcher/command-line.ts'
import { reachRedis } from '#launcher/reach.ts'
import { systemClock } from '#shared/clock.ts'
import { type Config, type Env, loadConfig } from '#shared/config/config.ts'
import { ServiceError } from '#shared/errors.ts'
import { LiveCatalogue } from '#shared/live-catalogue.ts'
import { loadCatalogue } from '#shared/load-catalogue.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { DeadLetters } from '#shared/queue/dead-letters.ts'
import { queueKeys } from '#shared/queue/keys.ts'

const LISTED_MAX = 200

/** `millrace dead-letters list|retry`: jobs that repeatedly killed their workers. */
export async function deadLetters(env: Env, { positionals }: Arguments): Promise<void> {
  const [action, jobId] = positionals
  const { config } = loadConfig(env)
  await reachRedis(config.infra)
  if (action === 'list') return list(config)
  if (jobId === undefined) throw new UsageError('dead-letters retry needs the id of a job')
  await retry(config, jobId)
  console.log(`${jobId} ended well this time`)
}

async function list(config: Config): Promise<void> {
  const redis = await openRedis(config.infra.redisUrl, 'producer', quiet())
  try {
    const letters = new DeadLetters({ redis, keys: queueKeys(config.infra.redisPrefix) })
    for (const letter of await letters.list(LISTED_MAX)) {
      const { jobId, kind, modelId, organizationId, enqueuedAtMs, isKept } = letter
      const at = new Date(enqueuedAtMs).toISOString()
      const input = isKept ? 'input kept' : 'input not kept'
      console.log(`${jobId}  ${at}  ${kind}.${modelId}  ${organizationId}  ${input}`)
    }
  } finally {
    redis.disconnect()
  }
}

async function retry({ infra, inference }: Config, jobId: string): Promise<void> {
  const log = quiet()
  const keys = queueKeys(infra.redisPrefix)
  const redis = await openRedis(infra.redisUrl, 'producer', log)
  const catalogue = new LiveCatalogue(await loadCatalogue(inference.catalogueFile), {
    redis,
    keys,
    log,
  })
  const submitter = await JobQueues.open(infra, redis, {
    log,
    clock: systemClock,
    cipher: openContentCipher(infra.encryptionKeys),
    queueDepthMax: inference.queueDepthMax,
    queuedBytesMax: inference.queuedBytesMax,
    // The input was kept under the policy of its organization.
    mayKeepInput: async () => true,
  })
  try {
    await catalogue.read()
    const { deadLetters } = submitter
    const services = { deadLetters, catalogue, submitter, clock: systemClock }
    await (await retryDeadLetter(services, jobId)).done
  } catch (error) {
    if (error instanceof ServiceError) throw new Error(error.message, { cause: error })
    throw error
  } finally {
    await submitter.close()
    redis.disconnect()
  }
}

function quiet() {
  return createLogger({ level: 'error' })
}
