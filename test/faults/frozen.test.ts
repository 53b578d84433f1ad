import { describe, expect, it } from 'vitest'

import { report, scale } from '#test/support/fault-report.ts'
import { countWrong, openFaultWorld, sleep, type FaultWorld } from '#test/support/fault-world.ts'
import { spawnReady } from '#test/support/queue.ts'
import { readAll, toyRequest } from '#test/support/queue.ts'
import { toyText } from '#test/support/toy-worker.ts'

const FROZEN_MS = scale(30_000, 2500)
const RUN_MS = scale(60_000, 4000)
const STREAMS = 8
const TIMEOUT_MS = 240_000

describe('R2: a worker is frozen and thawed', () => {
  it('and what it still says reaches nobody', { timeout: TIMEOUT_MS }, async () => {
    const world = await openFaultWorld()
    try {
      const first = await world.spawnWorker()
      const frames = tapReplies(world)
      // Long enough that the streams still flow elsewhere when the zombie wakes.
      const tokens = (FROZEN_MS + 4000) / 20
      const seen = await world.stream(
        STREAMS,
        tokens,
        async () => {
          first.kill('SIGSTOP')
          await world.spawnWorker()
          setTimeout(() => first.kill('SIGCONT'), FROZEN_MS)
        },
        'stepMs=20',
      )
      await sleep(500)
      const late = await frames.stop()
      const wrong = countWrong(seen, toyText(tokens))
      report('R2', {
        'frozen ms': FROZEN_MS,
        streams: seen.length,
        'replies of the zombie after its successor began': late,
        'wrong or repeated streams': wrong,
      })
      expect(wrong).toBe(0)
    } finally {
      await world.close()
    }
  })
})

describe('R3: a model runs for a minute', () => {
  it('in one go, is executed once and holds up nothing', { timeout: TIMEOUT_MS }, async () => {
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

  it('in code that blocks its loop, and the job goes on elsewhere', {
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

/** Reads the reply stream beside its owner, and counts what older epochs say after newer ones. */
function tapReplies({ admin, prefix }: FaultWorld): { stop(): Promise<number> } {
  const tap = admin.duplicate()
  tap.on('error', () => {})
  const newest = new Map<string, number>()
  let late = 0
  let isOver = false
  const reading = (async () => {
    const [stream = ''] = (await tap.keys(`${prefix}:replies:*`)).filter(
      (name) => !name.endsWith(':owner'),
    )
    let last = '0-0'
    while (!isOver) {
      const answer = await tap.xread('BLOCK', 200, 'STREAMS', stream || `${prefix}:none`, last)
      for (const [id, fields] of answer?.[0]?.[1] ?? []) {
        last = id
        for (const { jobId, epoch } of JSON.parse(fields[1] ?? '[]')) {
          if (epoch < (newest.get(jobId) ?? 0)) late += 1
          else newest.set(jobId, epoch)
        }
      }
    }
  })()
  return {
    async stop() {
      isOver = true
      await reading
      tap.disconnect()
      return late
    },
  }
}
