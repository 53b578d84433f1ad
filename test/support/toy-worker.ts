import type { CatalogueModel } from '#shared/catalogue.ts'
import { systemClock } from '#shared/clock.ts'
import { CancelledError, failure } from '#shared/errors.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { MODEL_RESIDENCY, Residency } from '#workers/models/residency.ts'
import { defineProcessor, type OpenModel } from '#workers/processors/index.ts'
import { WorkerHost } from '#workers/server/worker-host.ts'

/** Encrypts the content of the toy model's jobs, as in an installation. */
export const TOY_ENCRYPTION_KEY = 'a key of the tests for content in Redis'

/** The model that toy workers serve. */
export const TOY: CatalogueModel = {
  id: 'toy',
  kind: 'completion',
  source: 'none',
  aliases: [],
  ownedBy: 'test',
  created: 0,
  capabilities: ['completion'],
  options: {},
}

/** The token at a position: a function of the position alone, so that a lost stream shows. */
export const toyToken = (position: number): number => (position * 7919 + 13) % 997

/** The whole text of a toy answer. */
export const toyText = (tokens: number): string =>
  Array.from({ length: tokens }, (_, position) => `${toyToken(position)} `).join('')

/**
 * A deterministic stand-in for an engine. The prompt steers it: `poison` exits the process, `bad`
 * is refused, `bug` throws, `hang` waits for its cancellation, `huge` ends with a result beyond
 * what a reply holds; `stepMs=5` paces the tokens.
 */
const toyRow = defineProcessor<'completion', null>({
  kind: 'completion',
  slots: 16,
  open: async () => ({ opened: null, bytes: 1 }),
  stats: () => ({ waiting: 0, tokens: 0, cacheUse: 0 }),
  close: async () => {},
  async process({ input }, { reply, signal }) {
    if (input.task !== 'generate') throw failure.invalidRequest('only generate')
    const [prompt] = input.prompts
    const text = prompt?.form === 'text' ? prompt.text : ''
    if (text.includes('bad'))
      throw failure.invalidRequest('refused by the toy', { param: 'prompt' })
    if (text.includes('bug')) throw new Error('a secret detail')
    reply.started(1)
    const stepMs = Number(/stepMs=(\d+)/.exec(text)?.[1] ?? 0)
    if (text.includes('poison')) process.kill(process.pid, 'SIGKILL')
    const tokenIds = [...(input.resume?.find(({ index }) => index === 0)?.tokenIds ?? [])]
    if (text.includes('slowStart')) await pause(300, signal)
    if (text.includes('hang')) await pause(600_000, signal)
    while (tokenIds.length < (input.maxTokens ?? 0)) {
      if (stepMs > 0) await pause(stepMs, signal)
      // As an engine does between its steps.
      else if (tokenIds.length % 16 === 0) await new Promise(setImmediate)
      if (signal.aborted) throw new CancelledError()
      const token = toyToken(tokenIds.length)
      tokenIds.push(token)
      reply.delta([{ index: 0, text: `${token} `, tokenIds: [token] }])
    }
    reply.result(
      {
        task: 'generate',
        candidates: [
          {
            index: 0,
            text: text.includes('huge') ? 'x'.repeat(51_000_000) : toyText(tokenIds.length),
            tokenIds,
            finishReason: 'length',
          },
        ],
      },
      { promptTokens: 1, completionTokens: tokenIds.length, cachedTokens: 0 },
      { queueMs: 0, prepareMs: 0, runMs: 0 },
    )
  },
})

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      reject(new CancelledError())
    })
  })
}

/**
 * Starts a worker that serves the toy model with the product's own queue code; the model cannot be
 * loaded while `beforeLoading` throws, and has memory for `slotsNow` jobs.
 */
export async function startToyWorker(
  redisUrl: string,
  prefix: string,
  slots = 16,
  beforeLoading: () => void = () => {},
  slotsNow?: number,
): Promise<{ readonly workerId: string; stop(drainMs?: number): Promise<void> }> {
  const log = createLogger({ level: process.env.TOY_LOG === 'debug' ? 'debug' : 'silent' })
  const redis = await openRedis(redisUrl, 'worker', log)
  const subscriber = await openRedis(redisUrl, 'worker', log)
  const replies = await openRedis(redisUrl, 'replies', log)
  const open = async (): Promise<OpenModel> => {
    beforeLoading()
    const opened = await toyRow.open(TOY, undefined as never)
    const stats = () => ({ ...opened.stats(), ...(slotsNow !== undefined && { slots: slotsNow }) })
    return { ...opened, stats }
  }
  const host = new WorkerHost({
    redis,
    subscriber,
    replies,
    keys: queueKeys(prefix),
    served: [{ model: TOY, slots }],
    residency: new Residency<OpenModel>({ ...MODEL_RESIDENCY, bytesMax: 0, open, log }),
    version: 'test',
    clock: systemClock,
    cipher: openContentCipher([TOY_ENCRYPTION_KEY]),
    log,
  })
  await host.start()
  return {
    workerId: host.workerId,
    async stop(drainMs = 100) {
      await host.drain(drainMs)
      redis.disconnect()
      subscriber.disconnect()
      replies.disconnect()
    },
  }
}
