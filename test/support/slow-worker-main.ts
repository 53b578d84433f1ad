import { monitorEventLoopDelay } from 'node:perf_hooks'

import { systemClock } from '#shared/clock.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { LOOP_FILE, loopFeeds } from '#test/unit/workers/runtime/decoder-feeds.ts'
import { MODEL_RESIDENCY, Residency } from '#workers/models/residency.ts'
import { defineProcessor, type OpenModel } from '#workers/processors/index.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { WorkerHost } from '#workers/server/worker-host.ts'

import { TOY, TOY_ENCRYPTION_KEY, toyText, toyToken } from './toy-worker.ts'

// A worker whose jobs are one single model run (`runMs=`), or a loop in JavaScript (`blockMs=`).
// Arguments are the Redis address and the key prefix.
const [redisUrl = '', prefix = ''] = process.argv.slice(2)
const log = createLogger({ level: 'silent' })
const runtime = openRuntime()
const session = await runtime.load(LOOP_FILE, { intraOpThreads: 1 })
const redis = await openRedis(redisUrl, 'worker', log)

const ENDLESS = 1e9 // trips; days

/** Runs the model for so long, in one run that is ended from outside. */
async function runModel(ms: number): Promise<void> {
  const controller = new AbortController()
  const running = session
    .run(loopFeeds(runtime, ENDLESS), { y: null }, controller)
    .catch(() => undefined)
  const delay = monitorEventLoopDelay({ resolution: 5 })
  delay.enable()
  await new Promise((resolve) => setTimeout(resolve, ms))
  delay.disable()
  controller.abort()
  await running
  await redis.lpush(`${prefix}:loop-delays`, Math.round(delay.percentile(99) / 1e6))
}

const row = defineProcessor<'completion', null>({
  kind: 'completion',
  slots: 4,
  open: async () => ({ opened: null, bytes: 1 }),
  stats: () => ({ waiting: 0, tokens: 0, cacheUse: 0 }),
  close: async () => {},
  async process({ input }, { reply }) {
    const [prompt] = input.task === 'generate' ? input.prompts : []
    const text = prompt?.form === 'text' ? prompt.text : ''
    reply.started(1)
    const runMs = Number(/runMs=(\d+)/.exec(text)?.[1] ?? 0)
    if (runMs > 0) await runModel(runMs)
    const until = performance.now() + Number(/blockMs=(\d+)/.exec(text)?.[1] ?? 0)
    // A reply leaves before the loop is blocked; the answer after it must be discarded.
    const next = toyToken(input.task === 'generate' ? (input.resume?.[0]?.tokenIds.length ?? 0) : 0)
    reply.delta([{ index: 0, text: `${next} `, tokenIds: [next] }])
    await new Promise((resolve) => setTimeout(resolve, 50))
    while (performance.now() < until) {
      // This process sends nothing meanwhile.
    }
    reply.result(
      {
        task: 'generate',
        candidates: [
          { index: 0, text: toyText(1), tokenIds: [toyToken(0)], finishReason: 'length' },
        ],
      },
      { promptTokens: 1, completionTokens: 1, cachedTokens: 0 },
      { queueMs: 0, prepareMs: 0, runMs: 0 },
    )
  },
})

const host = new WorkerHost({
  redis,
  subscriber: await openRedis(redisUrl, 'worker', log),
  keys: queueKeys(prefix),
  served: [{ model: TOY, slots: 4 }],
  residency: new Residency<OpenModel>({
    ...MODEL_RESIDENCY,
    bytesMax: 0,
    open: () => row.open(TOY, undefined as never),
    log,
  }),
  version: 'test',
  clock: systemClock,
  cipher: openContentCipher([TOY_ENCRYPTION_KEY]),
  log,
})
await host.start()
process.stdout.write(`ready ${host.workerId}\n`)
