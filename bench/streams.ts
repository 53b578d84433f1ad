import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { startRedis } from '#launcher/embedded/redis.ts'
import { systemClock } from '#shared/clock.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

import type { Figure } from './figure.ts'
import { median } from './support/quantile.ts'
import { textOf, timeStream } from './support/token-stream.ts'

const PROMPT_TOKEN_IDS = [500, 600, 700, 800]
const ROUNDS = 5

/** A model to measure, and how many tokens of it make a round. */
interface Subject {
  readonly id: string
  readonly folder: string
  readonly tokens: number
}

const SHIPPED: Subject = { id: 'tiny-chat', folder: 'models/tiny-chat', tokens: 600 }
// Made by bench/make-decoder.py: random weights, for speed does not depend on the values.
const REALISTIC: Subject = {
  id: 'smollm2-shape',
  folder: '.data/bench/smollm2-shape',
  tokens: 64,
}
const END_TOKENS = { '0': -100, '1': -100, '2': -100 }

/** Every model that is there; the realistic shape needs its script to have run. */
export async function benchStreams(): Promise<readonly Figure[]> {
  const subjects = existsSync(REALISTIC.folder) ? [REALISTIC, SHIPPED] : [SHIPPED]
  const figures: Figure[] = []
  for (const subject of subjects) figures.push(...(await benchSubject(subject)))
  return figures
}

/**
 * Output tokens per second with 16 and with 1 streams: through HTTP, queue and
 * worker processes, against the engine alone in this process. Rounds alternate.
 */
async function benchSubject(subject: Subject): Promise<readonly Figure[]> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const redis = await startRedis(folder, { password: 'bench', onProgress: console.error })
  const postgres = await startPostgres(folder, { password: 'bench' })
  const catalogue = join(folder, 'models.json')
  const entry = { id: subject.id, kind: 'completion', source: resolve(subject.folder) }
  await writeFile(
    catalogue,
    JSON.stringify({ models: [{ ...entry, capabilities: ['completion'] }] }),
  )
  const tiers = await startTiers({
    env: { MILLRACE_CATALOGUE: catalogue },
    databaseUrl: postgres.url,
    redisUrl: redis.url,
    keyPrefix: 'bench',
    folder,
  })
  const runtime = openRuntime()
  const engine = await openTextEngine({ runtime, folder: subject.folder, slots: 16 })
  try {
    await tiers.startWorker()
    await checkTexts(tiers, engine, subject)
    const figures: Figure[] = []
    for (const [streams, atLeast] of [
      [16, 0.95],
      [1, 0.9],
    ] as const) {
      const ours: number[] = []
      const theirs: number[] = []
      for (let round = 0; round <= ROUNDS; round += 1) {
        const sides = [
          await throughTheApi(tiers, subject, streams),
          await engineAlone(engine, subject, streams),
        ] as const
        // The first round warms both up.
        if (round === 0) continue
        ours.push(sides[0])
        theirs.push(sides[1])
      }
      figures.push({
        name: `${streams} stream(s) of ${subject.id} through HTTP, queue and worker ÷ the engine alone`,
        unit: 'tokens/s',
        ours: median(ours),
        theirs: median(theirs),
        target: { atLeast },
      })
    }
    return figures
  } finally {
    await engine.close()
    await runtime.close()
    await tiers.stop()
    await redis.stop()
    await postgres.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Each of 16 streams has the text of the engine alone. Halves of characters may be shown in two
 * ways.
 */
async function checkTexts(
  { url, apiKey }: Tiers,
  engine: TextEngine,
  { id, folder, tokens }: Subject,
): Promise<void> {
  const body = { model: id, prompt: PROMPT_TOKEN_IDS, max_tokens: tokens, logit_bias: END_TOKENS }
  const service = { url: `${url}/v1`, headers: { authorization: `Bearer ${apiKey}` } }
  const answers = Array.from({ length: 16 }, () => timeStream(service, body))
  const tokenIds: number[] = []
  await runAlone(engine, { tokens, scope: 'check', onToken: (tokenId) => tokenIds.push(tokenId) })
  const { pieces } = (await loadTextModel(folder, systemClock)).tokenizer
  const whole = Buffer.concat(tokenIds.map((tokenId) => pieces.bytesOf(tokenId))).toString()
  const plain = (text: string): string => text.replaceAll('\uFFFD', '')
  for (const answer of await Promise.all(answers)) {
    assert.equal(plain(textOf(answer)), plain(whole), 'the two sides disagree')
  }
}

async function throughTheApi(
  tiers: Tiers,
  { id, tokens }: Subject,
  streams: number,
): Promise<number> {
  const startedAt = performance.now()
  const texts = await Promise.all(
    Array.from({ length: streams }, () =>
      readStream(tiers, {
        model: id,
        prompt: PROMPT_TOKEN_IDS,
        max_tokens: tokens,
        temperature: 0,
        logit_bias: END_TOKENS,
        stream: true,
      }),
    ),
  )
  if (!texts.every((text) => text.includes('data: [DONE]\n\n')))
    throw new Error(
      `a stream broke: ${texts.find((text) => !text.includes('[DONE]'))?.slice(-300)}`,
    )
  return (streams * tokens * 1000) / (performance.now() - startedAt)
}

/**
 * A client that only reads, without parsing HTTP frames: it shares the cores of the measured
 * service.
 */
function readStream({ url, apiKey }: Tiers, body: object): Promise<string> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url)
    const text = JSON.stringify(body)
    const head = [
      'POST /v1/completions HTTP/1.1',
      `host: ${hostname}`,
      `authorization: Bearer ${apiKey}`,
      'content-type: application/json',
      `content-length: ${Buffer.byteLength(text)}`,
      'connection: close',
    ]
    const parts: Buffer[] = []
    connect(Number(port), hostname)
      .on('data', (part) => parts.push(part))
      .on('error', reject)
      .on('end', () => resolve(Buffer.concat(parts).toString()))
      .write(`${head.join('\r\n')}\r\n\r\n${text}`)
  })
}

async function engineAlone(
  engine: TextEngine,
  { tokens }: Subject,
  streams: number,
): Promise<number> {
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: streams }, (_, index) => runAlone(engine, { tokens, scope: `${index}` })),
  )
  return (streams * tokens * 1000) / (performance.now() - startedAt)
}

async function runAlone(
  engine: TextEngine,
  run: {
    readonly tokens: number
    readonly scope: string
    readonly onToken?: (tokenId: number) => void
  },
): Promise<void> {
  await engine.run(
    {
      promptTokenIds: PROMPT_TOKEN_IDS,
      generatedTokenIds: [],
      maxNewTokens: run.tokens,
      endTokenIds: new Set(),
      cacheScope: `bench-${run.scope}`,
      sampler: { next: (logits) => ({ tokenId: likeliest(logits) }) },
      onToken({ tokenId }) {
        run.onToken?.(tokenId)
        return true
      },
    },
    { signal: new AbortController().signal },
  )
}

/** The likeliest token that does not end the text. */
function likeliest(logits: Float32Array): number {
  let best = 3
  for (let i = 3; i < logits.length; i += 1) {
    if ((logits[i] as number) > (logits[best] as number)) best = i
  }
  return best
}
