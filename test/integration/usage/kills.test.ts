import { Client } from 'pg'
import { expect } from 'vitest'

import { it } from '#test/support/services.ts'
import { ONE_MODEL, startTiers } from '#test/support/tiers.ts'

const COMPLETION = {
  model: 'tiny-chat',
  prompt: 'Once upon a time',
  temperature: 0,
  frequency_penalty: 0.7,
  // Ids 0, 1 and 2 end the text of the shipped model; without them it goes on to the limit.
  logit_bias: { '0': -100, '1': -100, '2': -100 },
}
/** Requests that the API process answers at the same time before it is killed. */
const ANSWERS = 3
/** The tokens of a stream are journaled every half second. */
const JOURNALED_MS = 1200
const POLL = { timeout: 60_000, interval: 100 }

it('writes one row of usage for every answered request, also when a process is killed or a client disconnects', {
  timeout: 300_000,
}, async ({ databaseUrl, redisUrl, keyPrefix, folder }) => {
  const tiers = await startTiers({ databaseUrl, redisUrl, keyPrefix, folder, env: ONE_MODEL })
  const sql = new Client({ connectionString: databaseUrl })
  await sql.connect()
  const rows = async (): Promise<{ request_id: string; outcome: string; tokens: number }[]> => {
    const text = `select request_id, outcome, completion_tokens::integer as tokens
      from usage order by created_at`
    return (await sql.query(text)).rows
  }
  const send = (url: string, body: object, signal?: AbortSignal) =>
    fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${tiers.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...COMPLETION, ...body }),
      ...(signal !== undefined && { signal }),
    })
  try {
    const [worker, answering, streaming] = await Promise.all([
      tiers.startWorker(),
      tiers.startApi(),
      tiers.startApi(),
    ])
    const expected: [string | null, string, number][] = []

    // The API process is killed as soon as the answers are there: nothing else may still have to
    // happen.
    const answered = Array.from({ length: ANSWERS }, async () => {
      const answer = await send(answering.url, { max_tokens: 5 })
      await answer.text()
      expected.push([answer.headers.get('x-request-id'), 'finished', 5])
    })
    await Promise.all(answered)
    await answering.process.stop(0)

    // The worker is killed in the middle of a stream, which another one finishes.
    const stream = await send(tiers.url, { max_tokens: 400, stream: true })
    let text = ''
    let killing: Promise<unknown> | undefined
    for await (const chunk of stream.body ?? []) {
      text += Buffer.from(chunk as Uint8Array).toString()
      if (text.length > 2000) killing ??= worker.kill().then(() => tiers.startWorker())
    }
    await killing
    expect(text).toContain('[DONE]')
    expected.push([stream.headers.get('x-request-id'), 'finished', 400])

    // The client leaves in the middle of a stream.
    const leaving = new AbortController()
    const left = await send(tiers.url, { max_tokens: 900, stream: true }, leaving.signal)
    const reader = left.body?.getReader()
    await reader?.read()
    await reader?.read()
    leaving.abort()
    expected.push([left.headers.get('x-request-id'), 'abandoned', expect.any(Number)])

    // The API process is killed in the middle of a stream, after it has journaled tokens.
    const cut = await send(streaming.url, { max_tokens: 900, n: 8, stream: true })
    let received = 0
    let firstAt: number | undefined
    await expect(async () => {
      for await (const chunk of cut.body ?? []) {
        firstAt ??= performance.now()
        received += `${Buffer.from(chunk as Uint8Array)}`.split('data: ').length - 1
        if (performance.now() - firstAt > JOURNALED_MS) await streaming.process.stop(0)
      }
    }).rejects.toThrow()
    const cutTokens = expect.toSatisfy((tokens: number) => tokens > received / 4 && tokens < 7200)
    expected.push([cut.headers.get('x-request-id'), 'abandoned', cutTokens])

    const last = await send(tiers.url, { max_tokens: 7 })
    await last.text()
    expected.push([last.headers.get('x-request-id'), 'finished', 7])

    await expect.poll(async () => (await rows()).length, POLL).toBe(expected.length)
    const found = await rows()
    const byRequest = new Map(found.map((row) => [row.request_id, row]))
    for (const [requestId, outcome, tokens] of expected) {
      expect(byRequest.get(requestId ?? '')).toMatchObject({ outcome, tokens })
    }
    const abandoned = byRequest.get(left.headers.get('x-request-id') ?? '')
    expect(abandoned?.tokens).toBeLessThan(900)
    // Each job is among the activities once too.
    const activities = `select from activities where activity->>'event' like 'job.%'`
    await expect
      .poll(async () => (await sql.query(activities)).rowCount, POLL)
      .toBe(expected.length)
  } finally {
    await sql.end()
    await tiers.stop()
  }
})
