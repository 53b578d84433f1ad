import OpenAI, { toFile } from 'openai'
import { expect } from 'vitest'

import { openFaultTiers } from '#test/support/fault-tiers.ts'
import { it } from '#test/support/services.ts'
import { API_KEY } from '#test/support/tiers.ts'

import { reach, readLines } from './batch-client.ts'

const LINES = 100
const ENDPOINT = '/v1/completions'
const TIMEOUT_MS = 400_000

it('a batch of two API processes, one killed in the middle, has every line once', {
  timeout: TIMEOUT_MS,
}, async ({ databaseUrl, database, redisUrl, keyPrefix, folder }) => {
  const tiers = openFaultTiers({ databaseUrl, redisUrl, keyPrefix, folder })
  try {
    const processes = [await tiers.startApi(), await tiers.startApi()]
    await tiers.startWorker()
    const made = await fetch(`${processes[0]?.url}/v1/api_keys`, {
      method: 'POST',
      body: JSON.stringify({ name: 'batches' }),
      headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    })
    const { id: key, secret } = (await made.json()) as { id: string; secret: string }
    const clients = processes.map(
      ({ url }) => new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 5 }),
    )
    const [first, second] = clients as [OpenAI, OpenAI]
    const wanted = Array.from({ length: LINES }, (_, at) => `line-${at}`)
    const text = wanted.map((id) => {
      const body = { model: 'tiny-chat', prompt: `Story ${id}.`, max_tokens: 60, temperature: 0 }
      return JSON.stringify({ custom_id: id, method: 'POST', url: ENDPOINT, body })
    })
    const file = await toFile(Buffer.from(text.join('\n')), 'lines.jsonl')
    const { id: inputFile } = await first.files.create({ purpose: 'batch', file })
    const { id } = await first.batches.create({
      input_file_id: inputFile,
      endpoint: ENDPOINT,
      completion_window: '24h',
    })
    const numDone = async () => (await second.batches.retrieve(id)).request_counts?.completed ?? 0
    await expect.poll(numDone, { timeout: 120_000, interval: 20 }).toBeGreaterThan(5)
    expect(await numDone()).toBeLessThan(LINES)
    processes[0]?.kill('SIGKILL')
    await expect
      .poll(async () => (await second.batches.retrieve(id)).status, { timeout: 240_000 })
      .toBe('completed')
    const batch = await reach(second, id, 'completed')
    expect(batch.request_counts).toEqual({ total: LINES, completed: LINES, failed: 0 })
    const lines = await readLines(second, batch.output_file_id)
    expect(lines.map(({ custom_id: name }) => name).sort()).toEqual(wanted.toSorted())
    expect(new Set(lines.map(({ id: name }) => name)).size).toBe(LINES)
    expect(lines.every(({ response }) => response?.status_code === 200)).toBe(true)
    expect(batch.error_file_id ?? null).toBeNull()
    // Each line is charged once, to the key that made the batch, also those that were run again.
    const rows = async () =>
      (
        await database.pool.query(`select request_id, outcome from usage where api_key_id = $1`, [
          key,
        ])
      ).rows
    await expect.poll(async () => (await rows()).length, { timeout: 60_000 }).toBe(LINES)
    const used = await rows()
    expect(used.every(({ outcome }) => outcome === 'finished')).toBe(true)
    expect(new Set(used.map(({ request_id }) => request_id))).toEqual(
      new Set(lines.map(({ id: name }) => name)),
    )
    const all = await database.pool.query('select from usage')
    expect(all.rowCount).toBe(LINES)
    const activities = await database.pool.query(
      `select from activities where object_id like 'job:%'`,
    )
    expect(activities.rowCount).toBe(LINES)
  } finally {
    await tiers.stop()
  }
})
