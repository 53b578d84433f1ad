import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import type { JobEvent, JobObserver, SubmitRequest } from '#api/jobs/observers.ts'
import { type OpenSubmitter, openSubmitter } from '#api/jobs/submit.ts'
import { findFreePort } from '#launcher/embedded/child.ts'
import { systemClock } from '#shared/clock.ts'
import type { GenerateInput } from '#shared/contracts/completion.ts'
import type { Reply } from '#shared/contracts/reply.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { parseFrame } from '#shared/queue/reply-inbox.ts'
import { NEUTRAL_SAMPLING } from '#test/support/sampling.ts'

import { TOY, TOY_ENCRYPTION_KEY } from './toy-worker.ts'

/** A log that says nothing, or everything under `TOY_LOG=debug`. */
export const log = createLogger({ level: process.env.TOY_LOG === 'debug' ? 'debug' : 'silent' })

/** A key prefix that no other test uses. */
export const freshPrefix = (): string => `test-${randomBytes(6).toString('hex')}`

/** A Redis of its own that a test may stop, kill and start again on the same data. */
export interface PrivateRedis {
  readonly url: string
  kill(): Promise<void>
  start(): Promise<void>
  close(): Promise<void>
}

/** Starts a private Redis with an append-only file. */
export async function startRedis(): Promise<PrivateRedis> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-redis-'))
  const port = await findFreePort()
  let child: ChildProcess | undefined
  const start = async (): Promise<void> => {
    const args = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', folder, '--save', '']
    child = spawn('redis-server', [...args, '--appendonly', 'yes'], { stdio: 'pipe' })
    await outputOf(child, /Ready to accept connections/)
  }
  const kill = async (): Promise<void> => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const gone = new Promise((resolve) => child?.once('exit', resolve))
    child.kill('SIGKILL')
    await gone
  }
  await start()
  return {
    url: `redis://127.0.0.1:${port}`,
    kill,
    start,
    async close() {
      await kill()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** A toy worker in its own process. */
export interface ToyProcess {
  readonly child: ChildProcess
  readonly workerId: string
  kill(signal: NodeJS.Signals): void
  readonly exited: Promise<number | null>
}

/** Spawns a toy worker and waits until it heartbeats. */
export async function spawnToyWorker(
  redisUrl: string,
  prefix: string,
  slots = 16,
): Promise<ToyProcess> {
  return spawnReady(join(import.meta.dirname, 'toy-worker-main.ts'), [redisUrl, prefix, `${slots}`])
}

/** Runs a script that prints `ready <name>` once it is. */
export async function spawnReady(script: string, args: readonly string[]): Promise<ToyProcess> {
  const child = spawn(process.execPath, [script, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  const output = await outputOf(child, /ready (\S+)\n/)
  const workerId = /ready (\S+)\n/.exec(output)?.[1] ?? ''
  return { child, workerId, exited, kill: (signal) => void child.kill(signal) }
}

/** A submitter that reports whether Redis answers it at this moment. */
interface TestSubmitter extends OpenSubmitter {
  isConnected(): Promise<boolean>
}

/** Opens a submitter on connections of its own. */
export async function openTestSubmitter(
  redisUrl: string,
  prefix: string,
  queueDepthMax = 1000,
  observers: readonly JobObserver[] = [],
  queuedBytesMax = 64 * 1024 * 1024,
): Promise<TestSubmitter> {
  const redis = await openRedis(redisUrl, 'producer', log)
  const reader = await openRedis(redisUrl, 'reader', log)
  const keys = queueKeys(prefix)
  const submitter = await openSubmitter({
    redis,
    reader,
    keys,
    queueDepthMax,
    queuedBytesMax,
    clock: systemClock,
    log,
    cipher: openContentCipher([TOY_ENCRYPTION_KEY]),
    observers,
  })
  return {
    ...submitter,
    isConnected: () =>
      redis.ping().then(
        () => true,
        () => false,
      ),
    async close() {
      await submitter.close()
      redis.disconnect()
    },
  }
}

/** The replies of one frame of the toy stack's streams, decrypted. */
export function readToyFrame(replyTo: string, fields: readonly Buffer[]): readonly Reply[] {
  return parseFrame(fields, { replyTo, cipher: openContentCipher([TOY_ENCRYPTION_KEY]), log })
}

/** A request to the toy model. */
export function toyRequest(
  text: string,
  maxTokens: number,
  overrides: Partial<SubmitRequest<'completion'>> = {},
): SubmitRequest<'completion'> {
  return {
    kind: 'completion',
    model: TOY,
    input: toyInput(text, maxTokens),
    organizationId: 'org',
    deadlineAtMs: Date.now() + 60_000,
    signal: new AbortController().signal,
    ...overrides,
  }
}

function toyInput(text: string, maxTokens: number): GenerateInput {
  return {
    task: 'generate',
    prompts: [{ form: 'text', text }],
    n: 1,
    bestOf: 1,
    maxTokens,
    sampling: { ...NEUTRAL_SAMPLING, temperature: 0, seed: 1 },
    stop: [],
    logprobs: null,
    echo: false,
    responseFormat: { type: 'text' },
    stream: true,
  }
}

/** Reads a job to its end: the text that a client would have seen, and the longest silence. */
export async function readAll(
  events: AsyncIterable<JobEvent<'completion'>>,
  onText?: (text: string) => void,
): Promise<{ text: string; starts: number; results: number; longestGapMs: number }> {
  const seen = { text: '', starts: 0, results: 0, longestGapMs: 0 }
  let at = performance.now()
  for await (const event of events) {
    seen.longestGapMs = Math.max(seen.longestGapMs, performance.now() - at)
    at = performance.now()
    if (event.type === 'started') seen.starts += 1
    if (event.type === 'result') seen.results += 1
    if (event.type !== 'delta') continue
    seen.text += event.deltas.map(({ text }) => text).join('')
    onText?.(seen.text)
  }
  return seen
}

/** Waits until something holds; fails after a minute. */
export async function eventually(holds: () => boolean | Promise<boolean>): Promise<void> {
  const until = performance.now() + 60_000
  while (!(await holds())) {
    if (performance.now() > until) throw new Error('it never came to hold')
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

function outputOf(child: ChildProcess, pattern: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = ''
    child.once('exit', () => reject(new Error(`exited early: ${output}`)))
    child.stdout?.on('data', (chunk: Buffer) => {
      output += chunk.toString()
      if (pattern.test(output)) resolve(output)
    })
  })
}
