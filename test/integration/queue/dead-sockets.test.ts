import { setTimeout as sleep } from 'node:timers/promises'

import { Redis } from 'ioredis'
import { afterEach, describe, expect, inject, it } from 'vitest'

import { openRedis } from '#shared/queue/connection.ts'
import { createRedis } from '#shared/queue/redis-client.ts'
import { limitCommands, readBeforeClosing } from '#shared/queue/redis-timeouts.ts'
import { type FaultProxy, openFaultProxy } from '#test/support/fault-proxy.ts'
import {
  eventually,
  freshPrefix,
  log,
  openTestSubmitter,
  readAll,
  spawnToyWorker,
  startRedis,
  toyRequest,
} from '#test/support/queue.ts'
import { toyText } from '#test/support/toy-worker.ts'
import { JobSource } from '#workers/server/job-source.ts'

const TOKENS = 60
const TIMEOUT_MS = 120_000
/** After this time without a byte a connection counts as dead. */
const SILENCE_MS = 3000
/** After this time BullMQ has stopped a wait and replaces its connection. */
const UNANSWERED_MS = 2200
const closers: (() => unknown)[] = []

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

/** One worker and one owner of jobs, each behind a proxy, or the worker without one. */
async function openWorld({ isDirect = false } = {}) {
  const redis = await startRedis()
  closers.push(redis.close)
  const behind = async (): Promise<{ proxy: FaultProxy; url: string }> => {
    const proxy = await openFaultProxy(Number(new URL(redis.url).port))
    closers.push(proxy.close)
    return { proxy, url: `redis://127.0.0.1:${proxy.port}` }
  }
  const [toOwner, toWorker] = [await behind(), await behind()]
  const prefix = freshPrefix()
  const submitter = await openTestSubmitter(toOwner.url, prefix)
  closers.push(() => submitter.close())
  const worker = await spawnToyWorker(isDirect ? redis.url : toWorker.url, prefix)
  closers.push(() => {
    worker.kill('SIGKILL')
    return worker.exited
  })
  const run = async (prompt: string, onFlow: (text: string) => void = () => {}) => {
    const deadlineAtMs = Date.now() + TIMEOUT_MS / 2
    return readAll(submitter.submit(toyRequest(prompt, TOKENS, { deadlineAtMs })), onFlow)
  }
  return { redis, submitter, run, proxies: { owner: toOwner.proxy, worker: toWorker.proxy } }
}

describe('connections to Redis that are dead without a word', () => {
  it.each([['worker'], ['owner']] as const)(
    'on the side of the %s are made anew, and the text goes on as it was',
    { timeout: TIMEOUT_MS },
    async (side) => {
      const { run, proxies, submitter } = await openWorld()
      let isFlowing = false
      const running = run('stepMs=50', () => {
        isFlowing = true
      })
      await eventually(() => isFlowing)
      proxies[side].abandon()
      const seen = await running
      expect([seen.text, seen.results]).toEqual([toyText(TOKENS), 1])
      await eventually(() => submitter.ledger.workers.length === 1 && submitter.isConnected())
      expect((await run('x')).text).toBe(toyText(TOKENS))
    },
  )
})

describe('a Redis that answers nothing for a while', () => {
  it('has the worker wait for jobs again once it answers', { timeout: TIMEOUT_MS }, async () => {
    const { redis, run, submitter } = await openWorld({ isDirect: true })
    expect((await run('x')).text).toBe(toyText(TOKENS))
    const client = new Redis(redis.url)
    closers.push(() => client.disconnect())
    // The owner waits for replies, and the worker for jobs.
    const waiting = async () => Number(/blocked_clients:(\d+)/.exec(await client.info())?.[1])
    await eventually(async () => (await waiting()) === 2)
    const pid = Number(/process_id:(\d+)/.exec(await client.info())?.[1])
    process.kill(pid, 'SIGSTOP')
    // Longer than a connection may be silent, so that it is replaced.
    await sleep(SILENCE_MS + 1000)
    process.kill(pid, 'SIGCONT')
    await eventually(async () => (await waiting()) === 2 && submitter.isConnected())
    expect((await run('x')).text).toBe(toyText(TOKENS))
  })
})

describe('a queue that closes after Redis has not answered its wait', () => {
  it('leaves no connection open', { timeout: TIMEOUT_MS }, async () => {
    const server = await startRedis()
    closers.push(server.close)
    const client = new Redis(server.url)
    closers.push(() => client.disconnect())
    const redis = await openRedis(server.url, 'worker', log)
    closers.push(() => redis.disconnect())
    const options = { name: 'completion.toy', prefix: freshPrefix(), redis, log }
    const source = new JobSource({ ...options, slots: 1, slotsNow: () => 1, run: async () => {} })
    const number = async (name: string) =>
      Number(new RegExp(`${name}:(\\d+)`).exec(await client.info())?.[1])
    await eventually(async () => (await number('blocked_clients')) === 1)
    const pid = await number('process_id')
    process.kill(pid, 'SIGSTOP')
    await sleep(UNANSWERED_MS)
    await source.close()
    process.kill(pid, 'SIGCONT')
    await eventually(async () => (await number('connected_clients')) === 2)
  })
})

describe('the time limits of a client of Redis', () => {
  const LIMIT_MS = 200

  async function openLimited() {
    const redis = createRedis(inject('redisUrl'), { socketTimeout: LIMIT_MS })
    closers.push(() => redis.disconnect())
    readBeforeClosing(redis)
    limitCommands(redis, LIMIT_MS)
    let closed = 0
    redis.on('error', () => {})
    redis.on('close', () => {
      closed += 1
    })
    await redis.ping()
    return { redis, numClosed: () => closed }
  }

  it('count no pause of the process, after which the answers are read', async () => {
    const { redis, numClosed } = await openLimited()
    const answers = [redis.ping(), redis.pipeline().ping().exec()]
    // By then the commands have been sent.
    await new Promise(setImmediate)
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * LIMIT_MS)
    expect(await Promise.all(answers)).toEqual(['PONG', [[null, 'PONG']]])
    expect(numClosed()).toBe(0)
  })

  it('reject a command that Redis does not answer, and close the connection', async () => {
    const { redis, numClosed } = await openLimited()
    await expect(redis.blpop(freshPrefix(), 10)).rejects.toThrow('Command timed out')
    await eventually(() => numClosed() === 1)
  })
})
