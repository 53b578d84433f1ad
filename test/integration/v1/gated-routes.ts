import { randomUUID } from 'node:crypto'

import multipart from '@fastify/multipart'
import { expect } from 'vitest'

import { openEventStream } from '#api/http/sse.ts'
import { createIdempotencyGate } from '#api/v1/idempotency.ts'
import { openIdempotencyStore } from '#api/v1/idempotency-store.ts'
import { systemClock } from '#shared/clock.ts'
import type { Database } from '#shared/db/client.ts'
import { failure } from '#shared/errors.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { openV1App } from '#test/support/v1-app.ts'

const log = createLogger({ level: 'silent' })
const closers: (() => unknown)[] = []

/** Closes what a test opened; for `afterEach`. */
export async function closeGated(): Promise<void> {
  for (const close of closers.splice(0).reverse()) await close()
}

/** The behaviour of the route for a request. */
export interface Sent {
  mode?: 'fail' | 'limit' | 'stream' | 'slowStream' | 'brokenStream' | 'hang' | 'refuse' | 'large'
  ms?: number
}

/**
 * A route that counts its runs, behind the gate, served by two processes' worth of applications.
 */
export async function openGated(database: Database, redisUrl: string, keyPrefix: string) {
  const redis = await openRedis(redisUrl, 'producer', log)
  closers.push(() => redis.disconnect())
  const runs = { count: 0, left: 0 }
  const gate = createIdempotencyGate({
    clock: systemClock,
    log,
    deadlineSeconds: 10,
    idempotency: openIdempotencyStore(redis, keyPrefix, 1e6),
    deleteReplies: async () => {},
  })
  const openOne = async () => {
    const surface = await openV1App(
      database,
      [
        async (app) => {
          app.post('/run', { config: { scope: 'any' } }, async (request, reply) => {
            runs.count += 1
            const { mode, ms = 0 } = request.body as Sent
            reply.raw.once('close', () => {
              if (!reply.raw.writableEnded) runs.left += 1
            })
            await new Promise((resolve) => setTimeout(resolve, mode === 'hang' ? 300 : ms))
            if (mode === 'fail') throw failure.overloaded('not now')
            if (mode === 'limit') throw failure.rateLimited('too fast')
            if (mode === 'refuse') throw failure.invalidRequest('bad', { param: 'x' })
            if (mode?.toLowerCase().endsWith('stream')) {
              const stream = openEventStream(reply)
              await stream.write(`data: {"run":${runs.count}}\n\n`)
              if (mode === 'slowStream') await new Promise((resolve) => setTimeout(resolve, 300))
              const isBroken = mode === 'brokenStream'
              await stream.write(isBroken ? 'data: {"error":{}}\n\n' : 'data: [DONE]\n\n')
              stream.end()
              return reply
            }
            reply.code(201).header('location', `/v1/run/${runs.count}`)
            return { run: runs.count, text: mode === 'large' ? 'x'.repeat(9 * 1024 * 1024) : 'ä' }
          })
          await app.register(multipart)
          app.post('/form', { config: { scope: 'any' } }, async (request) => {
            runs.count += 1
            await (await request.file())?.toBuffer()
            return { run: runs.count }
          })
        },
      ],
      { gates: [gate] },
    )
    closers.push(() => surface.app.close())
    return surface
  }
  const surface = await openOne()
  const send = async (body: Sent, key: string, options: { secret?: string; on?: string } = {}) => {
    const answer = await fetch(`${options.on ?? surface.base}/v1/run`, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: {
        authorization: `Bearer ${options.secret ?? surface.key}`,
        'content-type': 'application/json',
        'idempotency-key': key,
      },
    })
    const isReplay = answer.headers.get('idempotent-replayed') === 'true'
    return { status: answer.status, isReplay, text: await answer.text(), headers: answer.headers }
  }
  return { ...surface, runs, send, openOne, redis }
}

/** The result of `openGated`. */
export type Gated = Awaited<ReturnType<typeof openGated>>

/** Sends a request and leaves before it is answered. */
export async function leave(
  { base, key }: Gated,
  body: Sent,
  idempotencyKey: string,
): Promise<void> {
  const left = await fetch(`${base}/v1/run`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'idempotency-key': idempotencyKey,
    },
    signal: AbortSignal.timeout(100),
  })
    .then((answer) => answer.text())
    .catch(() => 'left')
  expect(left).toBe('left')
}

/** A form under a key, with a boundary of its own. */
export function formOf({ key }: Gated, text: string, idempotencyKey: string) {
  const boundary = randomUUID()
  const body = `--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\n${text}\r\n--${boundary}--\r\n`
  const headers = {
    authorization: `Bearer ${key}`,
    'content-type': `multipart/form-data; boundary=${boundary}`,
    'idempotency-key': idempotencyKey,
  }
  const lines = Object.entries({ ...headers, 'content-length': body.length })
  return { body, headers, head: lines.map((line) => `${line.join(': ')}\r\n`).join('') }
}

/** Sends it and says how it was answered. */
export async function sendForm(gated: Gated, text: string, idempotencyKey: string) {
  const { body, headers } = formOf(gated, text, idempotencyKey)
  const answer = await fetch(`${gated.base}/v1/form`, { method: 'POST', body, headers })
  await answer.body?.cancel()
  const isReplay = answer.headers.get('idempotent-replayed') === 'true'
  return { status: answer.status, isReplay }
}
