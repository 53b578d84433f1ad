import { Agent } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

import { toyCatalogue } from '#test/support/fault-tiers.ts'
import { API_KEY } from '#test/support/tiers.ts'
import { toyText } from '#test/support/toy-worker.ts'

import type { Figure } from './figure.ts'
import { quantile } from './support/quantile.ts'
import { openBenchTiers } from './support/service.ts'
import { textOf, timeStream } from './support/token-stream.ts'

const SLOTS = 16
const STEP_MS = 20
const TOKENS = 20
const QUEUE_DEPTH = 64
const OVERLOAD = 10
const ROUND_MS = 4000
const ROUNDS = 5

/**
 * Answers per second while ten times as many requests arrive as can be answered, against the most
 * that a crowd of waiting clients gets; and how long a refusal takes. The worker's answers cost no
 * computing, so that the slots are what is short.
 */
export async function benchOverload(): Promise<readonly Figure[]> {
  const { tiers, close } = await openBenchTiers(async (folder) => ({
    ...(await toyCatalogue(folder)),
    MILLRACE_QUEUE_DEPTH_MAX: String(QUEUE_DEPTH),
  }))
  const agent = new Agent({ keepAlive: true })
  try {
    const { url } = await tiers.startApi()
    await tiers.startToyWorker(SLOTS)
    const service = { url: `${url}/v1`, headers: { authorization: `Bearer ${API_KEY}` } }
    const ask = async (): Promise<{ isAnswered: boolean; endMs: number }> => {
      const body = { model: 'toy', prompt: `stepMs=${STEP_MS}`, max_tokens: TOKENS }
      const answer = await timeStream(service, body, { agent })
      const { status, endMs } = answer
      if (status === 200 && textOf(answer) !== toyText(TOKENS)) throw new Error('a wrong text')
      if (status !== 200 && status !== 503 && status !== 429) throw new Error(answer.raw)
      return { isAnswered: status === 200, endMs }
    }
    const peaks: number[] = []
    const underLoad: number[] = []
    const refusalsMs: number[] = []
    for (let round = 0; round <= ROUNDS; round += 1) {
      const peak = await peakRate(ask)
      const { rate, refusals } = await overloadedRate(ask, peak * OVERLOAD)
      if (round === 0) continue
      peaks.push(peak)
      underLoad.push(rate)
      refusalsMs.push(...refusals)
    }
    return [
      {
        name: `answers per second at ${OVERLOAD}× overload ÷ peak`,
        unit: 'answers/s',
        target: { atLeast: 0.95 },
        ours: quantile(underLoad, 0.5),
        theirs: quantile(peaks, 0.5),
      },
      {
        name: `p99 of ${refusalsMs.length} refusals at ${OVERLOAD}× overload ÷ 20 ms`,
        unit: 'ms',
        target: { atMost: 1 },
        ours: quantile(refusalsMs, 0.99),
        theirs: 20,
      },
    ]
  } finally {
    agent.destroy()
    await close()
  }
}

type Ask = () => Promise<{ readonly isAnswered: boolean; readonly endMs: number }>

/** Twice as many clients as slots, each with one request at a time. */
async function peakRate(ask: Ask): Promise<number> {
  const until = performance.now() + ROUND_MS
  const startedAt = performance.now()
  let answered = 0
  const tasks = Array.from({ length: 2 * SLOTS }, async () => {
    while (performance.now() < until) if ((await ask()).isAnswered) answered += 1
  })
  await Promise.all(tasks)
  return (answered * 1000) / (performance.now() - startedAt)
}

/** Requests come at their times, independent of earlier ones; the queue is full from the start. */
async function overloadedRate(
  ask: Ask,
  perSecond: number,
): Promise<{ readonly rate: number; readonly refusals: readonly number[] }> {
  const refusals: number[] = []
  let answeredInTime = 0
  const startedAt = performance.now()
  const from = startedAt + ROUND_MS / 4
  const until = from + ROUND_MS
  const asked: Promise<void>[] = []
  for (let count = 0; performance.now() < until; count += 1) {
    const waitMs = startedAt + (count * 1000) / perSecond - performance.now()
    if (waitMs > 0) await sleep(waitMs)
    asked.push(
      ask().then(({ isAnswered, endMs }) => {
        const now = performance.now()
        if (now < from || now > until) return
        if (isAnswered) answeredInTime += 1
        else refusals.push(endMs)
      }),
    )
  }
  await Promise.all(asked)
  return { rate: (answeredInTime * 1000) / ROUND_MS, refusals }
}
