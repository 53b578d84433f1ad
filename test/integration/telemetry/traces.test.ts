import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { SignJWT } from 'jose'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { scrape, sumOf } from '#test/support/metrics-text.ts'
import {
  type OtlpReceiver,
  orphansAmong,
  type ReceivedSpan,
  startOtlpReceiver,
} from '#test/support/otlp-receiver.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

const JWT_SECRET = 'a secret of the tests that is long enough'

describe('traces', () => {
  let database: Awaited<ReturnType<typeof createDatabase>>
  let folder: string
  let receiver: OtlpReceiver
  let tiers: Tiers
  let worker: Awaited<ReturnType<Tiers['startWorker']>>

  beforeAll(async () => {
    database = await createDatabase()
    folder = await mkdtemp(join(tmpdir(), 'millrace-traces-'))
    receiver = await startOtlpReceiver()
    tiers = await startTiers({
      databaseUrl: database.url,
      redisUrl: inject('redisUrl'),
      keyPrefix: freshPrefix(),
      folder,
      env: {
        AUTH_TRACING_ENABLED: 'true',
        OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
        OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
        OTEL_EXPORTER_OTLP_HEADERS: 'x-collector-key=abc',
        OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment=test,service.namespace=mills',
        OTEL_BSP_SCHEDULE_DELAY: '50',
        MILLRACE_WORKER_MODELS: 'tiny-chat,tiny-whisper',
      },
    })
    worker = await tiers.startWorker()
  })

  afterAll(async () => {
    await tiers?.stop()
    await receiver?.stop()
    await database?.drop()
    await rm(folder, { recursive: true, force: true })
  })

  const send = (path: string, init: RequestInit, traceparent: string) =>
    fetch(`${tiers.url}${path}`, {
      ...init,
      headers: { authorization: `Bearer ${tiers.apiKey}`, traceparent, ...init.headers },
    })
  const chat = (body: object): RequestInit => ({
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'tiny-chat',
      messages: [{ role: 'user', content: 'What is the capital of France?' }],
      max_tokens: 8,
      ...body,
    }),
  })
  /** Spans of a trace, once one of this name has arrived and nothing has followed for a while. */
  const spansOf = async (traceId: string, names: readonly string[]): Promise<ReceivedSpan[]> => {
    const own = () => receiver.spans.filter((span) => span.traceId === traceId)
    await expect
      .poll(() => own().map(({ name }) => name))
      .toEqual(expect.arrayContaining([...names]))
    return own()
  }
  const find = (spans: readonly ReceivedSpan[], name: string): ReceivedSpan => {
    const found = spans.find((span) => span.name === name)
    if (found === undefined) throw new Error(`no span ${name}`)
    return found
  }

  it.each([false, true])(
    'follow a request from the client to the model (stream %s)',
    async (stream) => {
      const parent = newParent()
      const answer = await send('/v1/chat/completions', chat({ stream }), parent.header)
      expect(answer.status).toBe(200)
      await answer.text()
      const route = 'POST /v1/chat/completions'
      const spans = await spansOf(parent.traceId, [route, 'process completion.tiny-chat'])
      const http = find(spans, route)
      const sent = find(spans, 'send completion.tiny-chat')
      const taken = find(spans, 'process completion.tiny-chat')
      const model = find(spans, 'chat tiny-chat')
      const query = spans.find(({ attributes }) => attributes['db.system.name'] === 'postgresql')
      expect(http.parentSpanId).toBe(parent.spanId)
      expect(query?.parentSpanId).toBe(http.spanId)
      expect(sent.parentSpanId).toBe(http.spanId)
      expect(taken.parentSpanId).toBe(sent.spanId)
      expect(model.parentSpanId).toBe(taken.spanId)
      expect([http.kind, sent.kind, taken.kind]).toEqual([2, 4, 5])
      expect(model.attributes).toMatchObject({
        'gen_ai.operation.name': 'chat',
        'gen_ai.request.model': 'tiny-chat',
      })
      expect(Number(model.attributes['gen_ai.usage.output_tokens'])).toBeGreaterThan(0)
      expect(model.events).toContain('gen_ai.first_token')
      expect(http.resource['service.name']).toBe('millrace-api')
      expect(taken.resource['service.name']).toBe('millrace-worker')
      expect(orphansAmong(spans, [parent.spanId])).toEqual([])
    },
  )

  it('reach the object storage on both sides', async () => {
    const parent = newParent()
    const init = { method: 'POST', body: await clipForm('en-2.flac') }
    const answer = await send('/v1/audio/transcriptions', init, parent.header)
    expect(answer.status).toBe(200)
    const spans = await spansOf(parent.traceId, [
      'object put',
      'object get',
      'transcription tiny-whisper',
    ])
    const taken = find(spans, 'process audio.tiny-whisper')
    expect(find(spans, 'object get').parentSpanId).toBe(taken.spanId)
    expect(find(spans, 'object put').resource['service.name']).toBe('millrace-api')
    expect(orphansAmong(spans, [parent.spanId])).toEqual([])
  })

  it('carry the attributes of the user server', async () => {
    const parent = newParent()
    const token = await new SignJWT({ role: 'service_role', aud: '' })
      .setProtectedHeader({ alg: 'HS256' })
      .setExpirationTime('5m')
      .sign(new TextEncoder().encode(JWT_SECRET))
    const id = '7a1b2c3d-0000-4000-8000-000000000000'
    const headers = { authorization: `Bearer ${token}` }
    expect((await send(`/admin/users/${id}`, { headers }, parent.header)).status).toBe(404)
    const spans = await spansOf(parent.traceId, ['GET /admin/users/{user_id}'])
    const span = find(spans, 'GET /admin/users/{user_id}')
    expect(span.attributes).toMatchObject({
      'http.method': 'GET',
      'http.route': '/admin/users/{user_id}',
      'http.route.params.user_id': id,
    })
    expect(Number(span.attributes['http.status_code'])).toBe(404)
    const { version } = JSON.parse(await readFile('package.json', 'utf8')) as { version: string }
    expect(span.resource).toMatchObject({
      'auth.version': version,
      'deployment.environment': 'test',
      'service.namespace': 'mills',
    })
    expect(receiver.headers.at(-1)?.['x-collector-key']).toBe('abc')
  })

  it('have no orphan spans when a worker is killed and another one continues the job', async () => {
    const parent = newParent()
    const init = { method: 'POST', body: await clipForm('en-long.flac') }
    const fetched = async () =>
      sumOf(await scrape(worker.metricsUrl), 'millrace_object_store_duration_seconds_count')
    const before = await fetched()
    const answering = send('/v1/audio/transcriptions', init, parent.header)
    const running = async () =>
      sumOf(await scrape(worker.metricsUrl), 'millrace_worker_jobs_running', { kind: 'audio' })
    await expect.poll(running, { interval: 10 }).toBe(1)
    // It has fetched the clip, which is a span that has ended.
    await expect.poll(fetched).toBeGreaterThan(before)
    await worker.kill()
    const second = await tiers.startWorker()
    expect((await answering).status).toBe(200)
    const spans = await spansOf(parent.traceId, [
      'POST /v1/audio/transcriptions',
      'process audio.tiny-whisper',
      'transcription tiny-whisper',
    ])
    expect(find(spans, 'send audio.tiny-whisper').events).toContain('job.resubmit')
    const runs = spans.filter(({ name }) => name === 'process audio.tiny-whisper')
    expect(runs.map(({ attributes }) => Number(attributes['millrace.job.epoch']))).toEqual([2])
    expect(spans.filter(({ name }) => name === 'object get')).toHaveLength(1)
    expect(orphansAmong(spans, [parent.spanId])).toEqual([])
    const samples = await scrape(tiers.metricsUrl)
    expect(sumOf(samples, 'millrace_job_resubmissions_total', { kind: 'audio' })).toBe(1)
    worker = second
  })

  it('of a worker are not exported when the API process that waited for them is killed', async () => {
    const parent = newParent()
    const doomed = await tiers.startApi()
    const init = { method: 'POST', body: await clipForm('en-long.flac') }
    const headers = { authorization: `Bearer ${tiers.apiKey}`, traceparent: parent.header }
    const url = `${doomed.url}/v1/audio/transcriptions`
    const answering = fetch(url, { ...init, headers }).catch(() => 'lost')
    const running = async () =>
      sumOf(await scrape(worker.metricsUrl), 'millrace_worker_jobs_running', { kind: 'audio' })
    await expect.poll(running, { interval: 10 }).toBe(1)
    await doomed.process.stop(0)
    expect(await answering).toBe('lost')
    await expect.poll(running).toBe(0)
    // A later span is exported later, so that the absence of the former means something.
    const marker = newParent()
    await (await send('/v1/chat/completions', chat({}), marker.header)).text()
    await spansOf(marker.traceId, ['process completion.tiny-chat'])
    expect(receiver.spans.filter(({ traceId }) => traceId === parent.traceId)).toEqual([])
  })

  it('are not sampled when the client says so', async () => {
    const parent = newParent('00')
    expect((await send('/v1/chat/completions', chat({}), parent.header)).status).toBe(200)
    const marker = newParent()
    await send('/v1/models', {}, marker.header)
    await spansOf(marker.traceId, ['GET /v1/models'])
    expect(receiver.spans.filter(({ traceId }) => traceId === parent.traceId)).toEqual([])
  })
})

async function clipForm(name: string): Promise<FormData> {
  const form = new FormData()
  form.set('model', 'tiny-whisper')
  const clip = await readFile(join(import.meta.dirname, '../../fixtures/audio', name))
  form.set('file', new Blob([clip]), name)
  return form
}

function newParent(flags = '01'): { header: string; traceId: string; spanId: string } {
  const traceId = randomBytes(16).toString('hex')
  const spanId = randomBytes(8).toString('hex')
  return { header: `00-${traceId}-${spanId}-${flags}`, traceId, spanId }
}
