import { describe, expect, it } from 'vitest'

import { queueKeys } from '#shared/queue/keys.ts'
import { openFaultProxy } from '#test/support/fault-proxy.ts'
import { report, scale } from '#test/support/fault-report.ts'
import {
  countWrong,
  type FaultWorld,
  openFaultWorld,
  type StreamSeen,
  sleep,
} from '#test/support/fault-world.ts'
import { eventually, readAll, readToyFrame, spawnReady, toyRequest } from '#test/support/queue.ts'
import { toyText } from '#test/support/toy-worker.ts'

const FROZEN_MS = scale(30_000, 2500)
const RUN_MS = scale(60_000, 4000)
const STREAMS = 8
const SHORT_TOKENS = 20
const TIMEOUT_MS = 240_000
/** The replies of the zombie that arrive after those of the worker in its place. */
const COME_LATE = ['delta', 'result']

/** The late replies by their types. */
type LateReplies = Readonly<Record<string, number>>

describe('R2: a worker is frozen and thawed', () => {
  it('and its later replies are discarded', { timeout: TIMEOUT_MS }, async () => {
    const world = await openFaultWorld()
    const { hostname, port } = new URL(world.server.url)
    const proxy = await openFaultProxy(Number(port))
    try {
      const zombie = await world.spawnWorker(16, `redis://${hostname}:${proxy.port}`)
      const replies = await tapReplies(world)
      // Long enough that the streams still flow elsewhere when the zombie wakes.
      const tokens = (FROZEN_MS + 4000) / 20
      let ending: Promise<StreamSeen[]> = Promise.resolve([])
      const going = await world.stream(
        STREAMS,
        tokens,
        async () => {
          // Its later replies, and the ends of the short streams, arrive late.
          ending = world.stream(STREAMS, SHORT_TOKENS, () => proxy.hold(), 'stepMs=20')
          await sleep(SHORT_TOKENS * 20 + 900)
          zombie.kill('SIGSTOP')
          await world.spawnWorker()
          setTimeout(() => {
            proxy.mend()
            zombie.kill('SIGCONT')
          }, FROZEN_MS)
        },
        'stepMs=20',
      )
      await eventually(() => COME_LATE.every((type) => (replies.late[type] ?? 0) > 0))
      const late = await replies.stop()
      const wrong =
        countWrong(going, toyText(tokens)) + countWrong(await ending, toyText(SHORT_TOKENS))
      report('R2', {
        'frozen ms': FROZEN_MS,
        streams: 2 * STREAMS,
        'late deltas of the zombie': late.delta ?? 0,
        'late endings': late.result ?? 0,
        'all late replies': Object.values(late).reduce((sum, count) => sum + count, 0),
        'wrong or repeated streams': wrong,
      })
      expect(wrong).toBe(0)
    } finally {
      await world.close()
      await proxy.close()
    }
  })
})

describe('R3: a model runs for a minute', () => {
  it('in one go, is executed once and delays nothing', { timeout: TIMEOUT_MS }, async () => {
    const world = await openFaultWorld()
    const script = new URL('../support/slow-worker-main.ts', import.meta.url).pathname
    const spawnSlow = () => spawnReady(script, [world.server.url, world.prefix])
    const workers = [await spawnSlow(), await spawnSlow()]
    try {
      const deadlineAtMs = Date.now() + RUN_MS + 60_000
      const seen = await readAll(
        world.submitter.submit(toyRequest(`runMs=${RUN_MS}`, 1, { deadlineAtMs })),
      )
      const runs = await world.admin.keys(`${world.prefix}:claim:*`)
      const delays = await world.admin.lrange(`${world.prefix}:loop-delays`, 0, -1)
      report('R3', {
        'run ms': RUN_MS,
        executions: runs.length,
        answers: seen.results,
        "p99 of the worker's loop delay ms": Math.max(...delays.map(Number)),
      })
      expect(seen).toMatchObject({ starts: 1, results: 1 })
      expect(runs).toHaveLength(1)
    } finally {
      for (const worker of workers) worker.kill('SIGKILL')
      await Promise.all(workers.map(({ exited }) => exited))
      await world.close()
    }
  })

  it('in code that blocks its event loop, and another worker continues the job', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const world = await openFaultWorld()
    const script = new URL('../support/slow-worker-main.ts', import.meta.url).pathname
    const blocked = await spawnReady(script, [world.server.url, world.prefix, 'blocks'])
    try {
      const blockMs = scale(30_000, 3000)
      const reading = readAll(
        world.submitter.submit(
          toyRequest(`blockMs=${blockMs}`, 40, { deadlineAtMs: Date.now() + 120_000 }),
        ),
      )
      await world.spawnWorker()
      const seen = await reading
      // Until it has said everything that it had to say.
      await sleep(blockMs)
      report('R3 (blocked loop)', { 'blocked ms': blockMs, answers: seen.results })
      expect(seen).toMatchObject({ text: toyText(40), results: 1, starts: 1 })
    } finally {
      blocked.kill('SIGKILL')
      await world.close()
    }
  })
})

/**
 * Reads the reply stream beside its owner, and counts by their types the replies of older epochs
 * that lie in it behind newer ones.
 */
async function tapReplies({ admin, prefix }: FaultWorld): Promise<{
  readonly late: LateReplies
  stop(): Promise<LateReplies>
}> {
  const tap = admin.duplicate()
  tap.on('error', () => {})
  const newest = new Map<string, number>()
  const late: Record<string, number> = {}
  let isOver = false
  // The owner says that it lives before the first reply lies in its stream.
  const suffix = queueKeys(prefix).owner('')
  const [owner] = await tap.keys(queueKeys(prefix).replyStream(`*${suffix}`))
  if (owner === undefined) throw new Error('nobody reads replies')
  const stream = owner.slice(0, -suffix.length)
  const reading = (async () => {
    let last = '0-0'
    while (!isOver) {
      const answer = await tap.xreadBuffer('BLOCK', 200, 'STREAMS', stream, last)
      for (const [id, fields] of answer?.[0]?.[1] ?? []) {
        last = id.toString()
        for (const { jobId, epoch, type } of readToyFrame(stream, fields)) {
          if (epoch < (newest.get(jobId) ?? 0)) late[type] = (late[type] ?? 0) + 1
          else newest.set(jobId, epoch)
        }
      }
    }
  })()
  return {
    late,
    async stop() {
      isOver = true
      await reading
      tap.disconnect()
      return late
    },
  }
}
