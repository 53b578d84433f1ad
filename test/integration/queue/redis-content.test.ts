import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import type { Redis } from 'ioredis'
import { expect } from 'vitest'

import { openRedis } from '#shared/queue/connection.ts'
import { Canaries } from '#test/integration/telemetry/canaries.ts'
import { freshPrefix, log, startRedis } from '#test/support/queue.ts'
import { dumpRedis, readAppendOnlyFiles } from '#test/support/redis-content.ts'
import { createDatabase, it } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

const CLIP = join(import.meta.dirname, '../../fixtures/audio/en-long.flac')
const CANARIES_MIN = 18
const CHAT = { model: 'tiny-chat', max_tokens: 24, temperature: 0 }

// The append-only file of a Redis that was never rewritten holds every write of every moment.
it('keeps no prompt and no answer in clear text in Redis, at any moment', async ({ folder }) => {
  const canaries = new Canaries()
  const database = await createDatabase()
  const server = await startRedis()
  const redis = await openRedis(server.url, 'reader', log)
  const place = { databaseUrl: database.url, redisUrl: server.url, keyPrefix: freshPrefix() }
  const tiers = await startTiers({ ...place, folder })
  try {
    await tiers.startWorker()
    await useEverything(tiers, canaries)
    expect(canaries.size).toBeGreaterThanOrEqual(CANARIES_MIN)
    const dir = ((await redis.config('GET', 'dir')) as string[])[1] ?? ''
    const everyWrite = await readAppendOnlyFiles(dir)
    // The search would find them: names of jobs and queues lie there as they are.
    expect(everyWrite.toString('latin1')).toContain('completion.tiny-chat')
    expect(canaries.foundIn(everyWrite.toString('latin1'))).toEqual([])
    expect(canaries.foundIn((await dumpRedis(redis)).toString('latin1'))).toEqual([])
    await rewrite(redis)
    expect(canaries.foundIn((await readAppendOnlyFiles(dir)).toString('latin1'))).toEqual([])
  } finally {
    await tiers.stop()
    redis.disconnect()
    await server.close()
    await database.drop()
  }
}, 120_000)

/** One request to everything that takes content, with a canary in each of its fields. */
async function useEverything(tiers: Tiers, canaries: Canaries): Promise<void> {
  const plant = (name: string): string => canaries.plant(name)
  const ask = async (path: string, body: object, headers: Record<string, string> = {}) => {
    const isForm = body instanceof FormData
    const answer = await fetch(`${tiers.url}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${tiers.apiKey}`,
        ...(!isForm && { 'content-type': 'application/json' }),
        ...headers,
      },
      body: isForm ? body : JSON.stringify(body),
    })
    const text = await answer.text()
    expect(answer.status, `${path}: ${text}`).toBe(200)
    return text.startsWith('{') ? JSON.parse(text) : {}
  }
  const messages = [{ role: 'user', content: plant('chat prompt') }]
  const chat = await ask('/v1/chat/completions', { ...CHAT, messages })
  canaries.know('chat answer', chat.choices[0].message.content)
  const streamed = [{ role: 'user', content: plant('streamed prompt') }]
  await ask('/v1/chat/completions', { ...CHAT, messages: streamed, stream: true })
  await ask('/v1/completions', { ...CHAT, prompt: plant('echoed prompt'), echo: true })
  await ask('/v1/edits', { model: 'tiny-chat', input: plant('edit'), instruction: plant('how') })
  const search = { query: plant('search query'), documents: [plant('search document')] }
  await ask('/v1/engines/tiny-chat/search', search)
  const rerank = { query: plant('rerank query'), documents: [plant('rerank document')] }
  await ask('/v1/rerank', { model: 'tiny-rerank', ...rerank })
  await ask('/v1/moderations', { input: plant('moderation input') })
  const input = plant('embedding input')
  const embedding = { model: 'tiny-embed', input, encoding_format: 'base64' }
  const embedded = await ask('/v1/embeddings', embedding)
  canaries.know('embedding vector', embedded.data[0].embedding.slice(0, 40))
  await ask('/v1/images/generations', { model: 'tiny-sd', prompt: plant('image prompt'), n: 1 })
  await transcribe(ask, canaries)
  // A kept job, its reply stream and its kept answer.
  const kept = { ...CHAT, prompt: plant('idempotent prompt'), echo: true }
  await ask('/v1/completions', kept, { 'idempotency-key': 'a-key-that-is-easy-to-guess' })
  const again = {
    ...CHAT,
    stream: true,
    messages: [{ role: 'user', content: plant('kept stream') }],
  }
  await ask('/v1/chat/completions', again, { 'idempotency-key': 'another-key' })
  const object = { type: 'Note', content: plant('activity') }
  const actor = 'https://example.test/actor'
  await fetch(`${tiers.url}/v1/activities`, {
    method: 'POST',
    headers: { authorization: `Bearer ${tiers.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ type: 'Create', actor, object }),
  })
  await runBatch(tiers, ask, canaries)
}

type Ask = (path: string, body: object) => Promise<Record<string, string>>

async function transcribe(ask: Ask, canaries: Canaries): Promise<void> {
  const form = new FormData()
  form.set('model', 'tiny-whisper')
  form.set('prompt', canaries.plant('audio prompt'))
  form.set('file', new Blob([await readFile(CLIP)]), `${canaries.plant('file name')}.flac`)
  const { text = '' } = await ask('/v1/audio/transcriptions', form)
  canaries.know('transcript', text.trim())
}

async function runBatch(tiers: Tiers, ask: Ask, canaries: Canaries): Promise<void> {
  const line = {
    custom_id: canaries.plant('custom id'),
    method: 'POST',
    url: '/v1/completions',
    body: { ...CHAT, prompt: canaries.plant('batch prompt'), echo: true },
  }
  const form = new FormData()
  form.set('purpose', 'batch')
  form.set('file', new Blob([`${JSON.stringify(line)}\n`]), 'batch.jsonl')
  const { id } = await ask('/v1/files', form)
  const target = { endpoint: '/v1/completions', completion_window: '24h' }
  const batch = await ask('/v1/batches', { input_file_id: id, ...target })
  const statusOf = async (): Promise<string> => {
    const headers = { authorization: `Bearer ${tiers.apiKey}` }
    const answer = await fetch(`${tiers.url}/v1/batches/${batch.id}`, { headers })
    return ((await answer.json()) as { status: string }).status
  }
  await expect.poll(statusOf).toBe('completed')
}

async function rewrite(redis: Redis): Promise<void> {
  await redis.bgrewriteaof()
  await expect
    .poll(() => redis.info('persistence'))
    .toMatch(/aof_rewrite_in_progress:0[\s\S]*aof_rewrite_scheduled:0/)
}
