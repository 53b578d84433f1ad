import type { Redis } from 'ioredis'

import type { OpenSubmitter } from '#api/jobs/submit.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { listWorkers } from '#shared/queue/liveness.ts'

import {
  eventually,
  freshPrefix,
  log,
  openTestSubmitter,
  type PrivateRedis,
  readAll,
  spawnToyWorker,
  startRedis,
  type ToyProcess,
  toyRequest,
} from './queue.ts'

/** The events of a stream. */
export type StreamSeen = Awaited<ReturnType<typeof readAll>>

/** A submitter here and toy workers in processes. */
export interface FaultWorld {
  readonly prefix: string
  readonly submitter: OpenSubmitter
  /** A connection for looking and meddling; commands wait while Redis is away. */
  readonly admin: Redis
  /** Starts a worker; `redisUrl` is where it reaches Redis, if elsewhere than the others. */
  spawnWorker(slots?: number, redisUrl?: string): Promise<ToyProcess>
  /** Starts streams of so many tokens and calls back once each has delivered something. */
  stream(
    count: number,
    tokens: number,
    onFlow: () => Promise<unknown> | unknown,
    prompt?: string,
  ): Promise<StreamSeen[]>
  numActive(): Promise<number>
  close(): Promise<void>
}

/** A world with a Redis of its own. */
type FaultWorldWithRedis = FaultWorld & { readonly server: PrivateRedis }

/**
 * Opens a world on a Redis of its own; `redisUrl` is where its parties reach it, if not directly.
 */
export async function openFaultWorld(
  options: { readonly redisUrl?: (server: PrivateRedis) => Promise<string> } = {},
): Promise<FaultWorldWithRedis> {
  const server = await startRedis()
  const world = await openFaultWorldOn((await options.redisUrl?.(server)) ?? server.url)
  return {
    ...world,
    server,
    async close() {
      await world.close()
      await server.close()
    },
  }
}

/** Opens a world on a running Redis. */
export async function openFaultWorldOn(
  url: string,
  prefix: string = freshPrefix(),
): Promise<FaultWorld> {
  const submitter = await openTestSubmitter(url, prefix)
  const admin = await openRedis(url, 'worker', log)
  const workers: ToyProcess[] = []
  return {
    prefix,
    submitter,
    admin,
    async spawnWorker(slots = 16, redisUrl = url) {
      const worker = await spawnToyWorker(redisUrl, prefix, slots)
      workers.push(worker)
      return worker
    },
    async stream(count, tokens, onFlow, prompt = 'stepMs=10') {
      const flowing = new Set<number>()
      const deadlineAtMs = Date.now() + 120_000
      const reading = Array.from({ length: count }, (_, i) =>
        readAll(submitter.submit(toyRequest(prompt, tokens, { deadlineAtMs })), () =>
          flowing.add(i),
        ),
      )
      const all = Promise.all(reading)
      await Promise.race([all, eventually(() => flowing.size === count)])
      await onFlow()
      return all
    },
    async numActive() {
      const heartbeats = await listWorkers(admin, queueKeys(prefix))
      return heartbeats.flatMap(({ queues }) => queues).reduce((sum, { active }) => sum + active, 0)
    },
    async close() {
      await submitter.close()
      for (const worker of workers) worker.kill('SIGKILL')
      await Promise.all(workers.map(({ exited }) => exited))
      admin.disconnect()
    },
  }
}

/** How many of the streams did not end with exactly the expected text, once. */
export function countWrong(seen: readonly StreamSeen[], text: string): number {
  return seen.filter((one) => one.text !== text || one.results !== 1 || one.starts !== 1).length
}

/** Waits for so long. */
export const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms))

/** The longest silence of any stream. */
export const longestGap = (seen: readonly StreamSeen[]): number =>
  Math.max(0, ...seen.map(({ longestGapMs }) => longestGapMs))
