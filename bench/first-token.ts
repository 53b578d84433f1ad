import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { Agent } from 'node:http'
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { quantile } from './support/quantile.ts'
import { type BenchService, openService } from './support/service.ts'
import { textOf, timeStream } from './support/token-stream.ts'

/** A model to measure, with prompts as long as it takes. */
interface Subject {
  readonly id: string
  readonly folder: string
  /** Tokens of a prompt that arrives while others stream. */
  readonly longPrompt: number
  /** Tokens of the prefix that the cache holds. */
  readonly prefix: number
  /** Tokens that each of the others streams. */
  readonly streamed: number
}

const SHIPPED: Subject = {
  id: 'tiny-chat',
  folder: 'models/tiny-chat',
  longPrompt: 1000,
  prefix: 1000,
  streamed: 900,
}
// Made by bench/make-decoder.py; its context is 2,048 tokens.
const REALISTIC: Subject = {
  id: 'smollm2-shape',
  folder: '.data/bench/smollm2-shape',
  longPrompt: 2000,
  prefix: 1000,
  streamed: 160,
}
const END_TOKENS = { '0': -100, '1': -100, '2': -100 }

const ANSWER_TOKENS = 64
const LOAD = 0.7
const ARRIVALS = 250 // of a round
const IDLE_REQUESTS = 100
const OTHERS = 7 // streams that go on while a long prompt arrives
const QUIET_SHARE = 0.6 // of the time no long prompt is computed

/** Time to the first token: under load, beside long prompts, and from a cached prefix. */
export async function benchFirstToken(): Promise<readonly Figure[]> {
  const figures: Figure[] = []
  for (const subject of [SHIPPED, REALISTIC]) {
    if (!existsSync(subject.folder)) continue
    const source = resolve(subject.folder)
    const model = { id: subject.id, kind: 'completion', source, capabilities: ['completion'] }
    const service = await openService([model])
    const agent = new Agent({ keepAlive: true })
    try {
      const bench = openAsker(service, subject, agent)
      figures.push(await fromCachedPrefix(bench))
      figures.push(await besideLongPrompts(bench))
      if (subject === SHIPPED) figures.push(await underLoad(bench))
    } finally {
      agent.destroy()
      await service.close()
    }
  }
  return figures
}

/** Asks one service for texts of one model. */
interface Asker {
  readonly subject: Subject
  /** A prompt without an earlier use, of the given number of tokens. */
  prompt(tokens: number): number[]
  ask(prompt: readonly number[], maxTokens: number): ReturnType<typeof timeStream>
}

function openAsker(service: BenchService, subject: Subject, agent: Agent): Asker {
  let asked = 0
  return {
    subject,
    prompt(tokens) {
      asked += 1
      return Array.from({ length: tokens }, (_, at) => 300 + ((asked * 31 + at * 7) % 1500))
    },
    async ask(prompt, maxTokens) {
      const body = { model: subject.id, prompt, max_tokens: maxTokens, logit_bias: END_TOKENS }
      const found = await timeStream(service, body, { agent })
      if (found.status !== 200) throw new Error(`answered ${found.status}: ${found.raw}`)
      return found
    },
  }
}

async function fromCachedPrefix({ subject, prompt, ask }: Asker): Promise<Figure> {
  let prefix: readonly number[] = []
  const ending = (): number[] => prompt(4)
  const found = await alternate(
    // The prefix is that of the cold run before, which the round after has thrown away.
    async () => {
      prefix = prompt(subject.prefix)
      await ask([...prefix, ...ending()], 1)
      return first(await ask([...prefix, ...ending()], 1))
    },
    async () => first(await ask([...prompt(subject.prefix), ...ending()], 1)),
  )
  const whole = [...prompt(subject.prefix), ...ending()]
  const texts = [textOf(await ask(whole, 8)), textOf(await ask(whole, 8))]
  assert.equal(texts[0], texts[1], 'the cached prefix changed the text')
  const name = `first token of ${subject.id} with ${subject.prefix} tokens of prefix cached ÷ cold`
  return { name, unit: 'ms', ...found, target: { atMost: 0.1 } }
}

/** Seven streams go on while long prompts come one after another, with pauses between them. */
async function besideLongPrompts({ subject, prompt, ask }: Asker): Promise<Figure> {
  const gaps: number[] = []
  let isOver = false
  const disturb = async (): Promise<void> => {
    while (!isOver) {
      const { endMs } = await ask(prompt(subject.longPrompt), 1)
      await sleep((endMs * QUIET_SHARE) / (1 - QUIET_SHARE))
    }
  }
  const streams = Array.from({ length: OTHERS }, async () => {
    const { partsMs } = await ask(prompt(4), subject.streamed)
    // The first of them start together and compute their own prompts.
    for (let at = 3; at < partsMs.length; at += 1) {
      gaps.push((partsMs[at] as number) - (partsMs[at - 1] as number))
    }
  })
  const disturbance = disturb()
  await Promise.all(streams)
  isOver = true
  await disturbance
  const name = `gap between tokens of ${OTHERS} streams of ${subject.id} while prompts of ${subject.longPrompt} tokens arrive, p99 ÷ median`
  return {
    name,
    unit: 'ms',
    target: { atMost: 2 },
    ours: quantile(gaps, 0.99),
    theirs: quantile(gaps, 0.5),
  }
}

/**
 * Requests that arrive at random, at 70 % of the rate at which 16 at a time are answered. The rate
 * is measured anew in each round, right before it is used: the pace of a machine changes within a
 * minute.
 */
async function underLoad({ subject, prompt, ask }: Asker): Promise<Figure> {
  const request = () => ask(prompt(16), ANSWER_TOKENS)
  const peaks: number[] = []
  const loaded = async (): Promise<number> => {
    const peak = await peakRate(request)
    peaks.push(peak)
    const running: Promise<number>[] = []
    let at = performance.now()
    for (let i = 0; i < ARRIVALS; i += 1) {
      at += (-Math.log(1 - Math.random()) * 1000) / (peak * LOAD)
      await sleep(Math.max(0, at - performance.now()))
      running.push(request().then(first))
    }
    return quantile(await Promise.all(running), 0.99)
  }
  const idle = async (): Promise<number> => {
    const alone: number[] = []
    for (let i = 0; i < IDLE_REQUESTS; i += 1) alone.push(first(await request()))
    return quantile(alone, 0.99)
  }
  const found = await alternate(loaded, idle)
  const rate = quantile(peaks, 0.5).toFixed(0)
  const name = `first token of ${subject.id} at ${LOAD * 100} % of ${rate} requests/s ÷ idle, p99 of both`
  return { name, unit: 'ms', ...found, target: { atMost: 3 } }
}

async function peakRate(request: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  const tasks = Array.from({ length: 16 }, async () => {
    for (let turn = 0; turn < 12; turn += 1) await request()
  })
  await Promise.all(tasks)
  return (16 * 12 * 1000) / (performance.now() - startedAt)
}

const first = ({ partsMs }: { readonly partsMs: readonly number[] }): number =>
  partsMs[0] ?? Number.NaN
