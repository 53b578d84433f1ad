import { describe, expect } from 'vitest'

import { defined } from '#shared/json.ts'
import { post, readCompletion } from '#test/support/fault-client.ts'
import { quantile, report, scale } from '#test/support/fault-report.ts'
import type { TierProcess } from '#test/support/fault-tiers.ts'
import { it, type ToyTiers, timeUntil, toyBody } from '#test/support/fault-toy.ts'
import { sleep } from '#test/support/fault-world.ts'
import { residentMib } from '#test/support/process-use.ts'
import { toyText } from '#test/support/toy-worker.ts'
import { watchProcess } from '#test/support/watched-process.ts'

const TIMEOUT_MS = 400_000

describe('R13: every process is restarted in turn', () => {
  it('under load, and no request fails', { timeout: TIMEOUT_MS }, async ({ open }) => {
    const tiers = await open({ MILLRACE_DRAIN_TIMEOUT: '30' })
    // The generations of ten minutes belong to this process, the passing load to the others.
    const long = new AbortController()
    const fronts: TierProcess[] = [await tiers.startApi(), await tiers.startApi()]
    let worker = await tiers.startToyWorker(200)
    const texts: string[] = []
    const generations = Array.from({ length: 4 }, (_, i) =>
      tiers
        .read('stepMs=250', 2400, {
          signal: long.signal,
          onChunk: ({ text }) => {
            texts[i] = text
          },
        })
        .catch(() => 'ended by the test'),
    )
    await timeUntil(() => texts.filter((text) => text !== '').length === generations.length)
    const load = startLoad(fronts, scale(50, 10))
    const exitMs: number[] = []
    const apiExitMs: number[] = []
    for (let round = 0; round < scale(3, 1); round += 1) {
      const next = await tiers.startToyWorker(200)
      exitMs.push(await exitTime(worker))
      worker = next
      for (let i = 0; i < fronts.length; i += 1) {
        const fresh = await tiers.startApi()
        const [old] = fronts.splice(i, 1, fresh)
        apiExitMs.push(await exitTime(defined(old)))
      }
    }
    const { numDone, failures } = await load.stop()
    // The long ones go on after all of it.
    const before = texts.map((text) => text.length)
    await timeUntil(() => texts.every((text, i) => text.length > defined(before[i])))
    long.abort()
    await Promise.all(generations)
    const broken = texts.filter((text) => !toyText(2400).startsWith(text)).length
    report('R13', {
      'worker restarts': exitMs.length,
      'API restarts': apiExitMs.length,
      requests: numDone,
      failed: failures.length,
      'ten-minute generations broken': broken,
      'worker gone after ms, at most': Math.max(...exitMs),
      'API gone after ms, at most': Math.max(...apiExitMs),
    })
    expect(failures).toEqual([])
    expect(broken).toBe(0)
    expect(numDone).toBeGreaterThan(20)
  })
})

describe('R14: ten times more comes than can be served', () => {
  it('and all that is admitted is answered', { timeout: TIMEOUT_MS }, async ({ open }) => {
    const heap = await watchProcess()
    const depthMax = 20
    const tiers = await open({ MILLRACE_QUEUE_DEPTH_MAX: String(depthMax), ...heap.env })
    await tiers.startToyWorker(4)
    // Four slots of 200 ms each serve 20 jobs a second.
    const job = toyBody('stepMs=40', 5, false)
    // Growth that happens once, with the first requests of a process, is not growth under overload.
    const warming = Array.from({ length: 500 }, () => measured(tiers, job))
    await Promise.all(warming)
    const before = { heap: await heap.collectedMib(), resident: residentMib(tiers.api.pid) }
    const answers: Promise<{ status: number; ms: number; hint: boolean }>[] = []
    const until = performance.now() + scale(60_000, 4000)
    while (performance.now() < until) {
      for (let i = 0; i < 10; i += 1) answers.push(measured(tiers, job))
      await sleep(50)
    }
    const done = await Promise.all(answers)
    const after = { heap: await heap.collectedMib(), resident: residentMib(tiers.api.pid) }
    const recoveredMs = await timeUntil(async () => (await measured(tiers, job)).status === 200)
    const admitted = done.filter(({ status }) => status === 200)
    const refused = done.filter(({ status }) => status === 503)
    report('R14', {
      offered: done.length,
      admitted: admitted.length,
      'refused with a hint when to retry': refused.filter(({ hint }) => hint).length,
      'answered otherwise': done.length - admitted.length - refused.length,
      'admitted p99 ms': quantile(
        admitted.map(({ ms }) => ms),
        0.99,
      ),
      'refused p99 ms': quantile(
        refused.map(({ ms }) => ms),
        0.99,
      ),
      'heap growth MiB': after.heap - before.heap,
      'resident growth MiB': after.resident - before.resident,
      'recovered after ms': recoveredMs,
    })
    expect(done.length).toBe(admitted.length + refused.length)
    expect(refused.every(({ hint }) => hint)).toBe(true)
    expect(refused.length).toBeGreaterThan(admitted.length)
    expect(admitted.length).toBeGreaterThanOrEqual(depthMax)
    // Uncollected memory comes and goes; leaked memory would accumulate.
    expect(after.heap - before.heap).toBeLessThan(8)
    expect(after.resident - before.resident).toBeLessThan(256)
  })
})

describe('R15: a client says how long it waits', () => {
  it('and its job is dropped when that time is over', { timeout: TIMEOUT_MS }, async ({ open }) => {
    const tiers = await open()
    const headers = { 'x-stainless-timeout': '1' }
    const unserved = Array.from({ length: scale(50, 10) }, () =>
      readCompletion(tiers.api.url, toyBody('x', 1, false), { headers }),
    )
    const statuses = (await Promise.all(unserved)).map(({ status }) => status)
    // A refused client need not wait until its job is removed too.
    await timeUntil(async () => (await tiers.numWaiting()) === 0)
    const waitingAfter = await tiers.numWaiting()
    await tiers.startToyWorker(4)
    const runsAfter = await tiers.numRuns()
    const hanging = await readCompletion(tiers.api.url, toyBody('hang', 1, false), { headers })
    await timeUntil(async () => (await tiers.numHeld()) === 0)
    report('R15', {
      'expired while queued': statuses.filter((status) => status === 504).length,
      'of them run later': runsAfter,
      'left in the queue': waitingAfter,
      "a running one's status": hanging.status,
    })
    expect(new Set(statuses)).toEqual(new Set([504]))
    expect([runsAfter, waitingAfter, hanging.status]).toEqual([0, 0, 504])
  })
})

describe('R18: one Idempotency-Key', () => {
  it('in parallel requests to two processes runs once', { timeout: TIMEOUT_MS }, async ({
    open,
  }) => {
    const tiers = await open()
    await tiers.startToyWorker(16)
    const second = await tiers.startApi()
    const headers = { 'idempotency-key': 'r18' }
    const send = async (i: number, body = toyBody('stepMs=10', 40, false)) => {
      const url = i % 2 === 0 ? tiers.api.url : second.url
      while (true) {
        const answer = await post(url, '/v1/completions', body, { headers })
        const text = await answer.text()
        // An overloaded process refuses for a moment, and its client comes again.
        if (answer.status !== 503) return `${answer.status} ${text}`
      }
    }
    const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => send(i)))
    const other = await send(0, toyBody('stepMs=10', 41, false))
    second.kill('SIGKILL')
    await second.exited
    const replayed = await send(0)
    const runs = await tiers.numRuns()
    report('R18', {
      requests: answers.length,
      executions: runs,
      'different answers': new Set(answers).size,
      'another body': other.slice(0, 3),
      'replay after a crash is the same': String(replayed === answers[0]),
    })
    expect(runs).toBe(1)
    expect(new Set([...answers, replayed])).toEqual(new Set([replayed]))
    expect(other.slice(0, 3)).toBe('422')
  })
})

/** Sends so many requests a second to processes that listen, as a load balancer would. */
function startLoad(fronts: readonly TierProcess[], perSecond: number) {
  const failures: unknown[] = []
  const underway = new Set<Promise<void>>()
  let numDone = 0
  const send = async (turn: number): Promise<void> => {
    for (let attempt = 0; attempt < 20; attempt += 1) {
      const front = defined(fronts[(turn + attempt) % fronts.length])
      try {
        const seen = await readCompletion(front.url, toyBody('stepMs=5', 20))
        if (seen.text !== toyText(20)) failures.push(seen)
        numDone += 1
        return
      } catch (error) {
        // Nothing was accepted: a balancer goes on to the next process. A broken answer says
        // otherwise.
        if ((error as Error).message !== 'fetch failed') {
          failures.push(error)
          return
        }
      }
      await sleep(20)
    }
    failures.push('no process listened')
  }
  let turn = 0
  const timer = setInterval(() => {
    turn += 1
    const sending = send(turn).finally(() => underway.delete(sending))
    underway.add(sending)
  }, 1000 / perSecond)
  return {
    async stop() {
      clearInterval(timer)
      await Promise.all(underway)
      return { numDone, failures }
    },
  }
}

/** How long a process takes to end after it was asked to. */
async function exitTime(process: {
  kill(signal: NodeJS.Signals): void
  readonly exited: Promise<unknown>
}): Promise<number> {
  const from = performance.now()
  process.kill('SIGTERM')
  await process.exited
  return performance.now() - from
}

async function measured(
  tiers: ToyTiers,
  body: unknown,
): Promise<{ status: number; ms: number; hint: boolean }> {
  const from = performance.now()
  const answer = await tiers.post(body)
  await answer.text()
  const hint = Number(answer.headers.get('retry-after')) > 0 && answer.headers.has('x-should-retry')
  return { status: answer.status, ms: performance.now() - from, hint }
}
