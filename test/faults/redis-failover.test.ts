import { describe, expect, it } from 'vitest'

import { queueKeys } from '#shared/queue/keys.ts'
import { report, scale } from '#test/support/fault-report.ts'
import {
  countWrong,
  type FaultWorld,
  longestGap,
  openFaultWorldOn,
  type StreamSeen,
} from '#test/support/fault-world.ts'
import { eventually, freshPrefix, readAll, toyRequest } from '#test/support/queue.ts'
import { type RedisTopology, startCluster, startSentinels } from '#test/support/redis-topologies.ts'
import { TOY, toyText } from '#test/support/toy-worker.ts'

const STREAMS = scale(50, 12)
const TOKENS = 300
const TIMEOUT_MS = 240_000

describe('failover of Redis', () => {
  it('R26: Sentinel promotes the replica when the master is killed', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const redis = await startSentinels()
    await expectFailover('R26', redis, { prefix: freshPrefix(), kills: [''] })
  })

  it('R27: a cluster promotes the replicas of the killed masters of queue and replies', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const redis = await startCluster()
    const { prefix, kills } = await chooseShards(redis)
    await expectFailover('R27', redis, { prefix, kills })
  })
})

/** A prefix under which the queue and the replies are on two shards: each loses one master. */
async function chooseShards(redis: Awaited<ReturnType<typeof startCluster>>) {
  for (;;) {
    const prefix = `{${freshPrefix()}}`
    const keys = queueKeys(prefix)
    const kills = [keys.bull(TOY.kind, TOY.id, 'wait'), keys.workers]
    if (await redis.areApart(kills)) return { prefix, kills }
  }
}

/** Kills the masters of keys one after the other, each while streams run and jobs wait. */
async function expectFailover(
  name: string,
  redis: RedisTopology,
  { prefix, kills }: { readonly prefix: string; readonly kills: readonly string[] },
): Promise<void> {
  const world = await openFaultWorldOn(redis.url, prefix).catch(async (error: unknown) => {
    await redis.close()
    throw error
  })
  try {
    await world.spawnWorker(STREAMS)
    for (const key of kills) {
      let waiting: Promise<StreamSeen[]> = Promise.resolve([])
      const seen = await world.stream(STREAMS, TOKENS, async () => {
        const submit = () => readAll(world.submitter.submit(toyRequest('x', 5)))
        waiting = Promise.all(Array.from({ length: STREAMS }, submit))
        // A job that is not in its queue yet may be refused while no master is known.
        const areQueued = async () => (await countQueued(world, prefix)) === STREAMS
        await Promise.race([waiting, eventually(areQueued)])
        await redis.killMaster(key)
      })
      const ended = await waiting
      const wrong = countWrong(seen, toyText(TOKENS)) + countWrong(ended, toyText(5))
      const tail = await readAll(world.submitter.submit(toyRequest('x', 5)))
      report(name, {
        streams: seen.length,
        'waiting jobs': ended.length,
        'lost, repeated or changed': wrong,
        'longest silence ms': longestGap(seen),
      })
      expect(wrong).toBe(0)
      expect(tail.text).toBe(toyText(5))
    }
  } finally {
    await world.close()
    await redis.close()
  }
}

/** How many jobs wait for a slot. */
function countQueued({ admin }: FaultWorld, prefix: string): Promise<number> {
  return admin.zcard(queueKeys(prefix).bull(TOY.kind, TOY.id, 'prioritized'))
}
