import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { parseMetrics, scrape, sumOf } from '#test/support/metrics-text.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

const CHAT = { gen_ai_operation_name: 'chat', gen_ai_request_model: 'tiny-chat' }
const EMBED = { gen_ai_operation_name: 'embeddings', gen_ai_request_model: 'tiny-embed' }
const SERIES_MAX = 4000

describe('the metrics of a running installation', () => {
  let database: Awaited<ReturnType<typeof createDatabase>>
  let folder: string
  let tiers: Tiers
  let worker: Awaited<ReturnType<Tiers['startWorker']>>

  beforeAll(async () => {
    database = await createDatabase()
    folder = await mkdtemp(join(tmpdir(), 'millrace-metrics-'))
    tiers = await startTiers({
      databaseUrl: database.url,
      redisUrl: inject('redisUrl'),
      keyPrefix: freshPrefix(),
      folder,
      env: {
        MILLRACE_METRICS_COMPAT: 'vllm',
        MILLRACE_WORKER_MODELS: 'tiny-chat,tiny-embed',
        AUTH_MAILER_AUTOCONFIRM: 'true',
      },
    })
    worker = await tiers.startWorker()
  })

  afterAll(async () => {
    await tiers?.stop()
    await database?.drop()
    await rm(folder, { recursive: true, force: true })
  })

  const post = (path: string, body: object) =>
    fetch(`${tiers.url}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${tiers.apiKey}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify(body),
    })
  const chat = (more: object = {}) =>
    post('/v1/chat/completions', {
      model: 'tiny-chat',
      messages: [{ role: 'user', content: 'What is the capital of France?' }],
      max_tokens: 8,
      ...more,
    })

  it('counts requests by route template and status, never by path', async () => {
    const before = await scrape(tiers.metricsUrl)
    expect((await chat()).status).toBe(200)
    await fetch(`${tiers.url}/v1/files/file-abc`, {
      headers: { authorization: `Bearer ${tiers.apiKey}` },
    })
    await fetch(`${tiers.url}/no/such/path-${Math.random()}`)
    const after = await scrape(tiers.metricsUrl)
    const grown = (labels: Record<string, string>) =>
      sumOf(after, 'http_server_request_duration_seconds_count', labels) -
      sumOf(before, 'http_server_request_duration_seconds_count', labels)
    expect(grown({ http_route: '/v1/chat/completions', http_response_status_code: '200' })).toBe(1)
    const found = after.filter(({ labels }) => labels.http_route?.startsWith('/v1/files/{'))
    expect(found.length).toBeGreaterThan(0)
    expect(grown({ http_route: 'unknown', http_response_status_code: '404' })).toBe(1)
    expect(JSON.stringify(after)).not.toContain('file-abc')
    expect(JSON.stringify(after)).not.toContain('path-0.')
  })

  it('measures a job: wait, first token, tokens, duration, batch, prefix', async () => {
    const before = await scrape(worker.metricsUrl)
    const beforeApi = await scrape(tiers.metricsUrl)
    const answer = (await (await chat()).json()) as {
      usage: { prompt_tokens: number; completion_tokens: number }
    }
    await (await chat({ stream: true })).text()
    await post('/v1/embeddings', { model: 'tiny-embed', input: ['a', 'b', 'c'] })
    // A client has its answer a moment before the run is over.
    const running = async () =>
      sumOf(await scrape(worker.metricsUrl), 'millrace_worker_jobs_running')
    await expect.poll(running).toBe(0)
    const after = await scrape(worker.metricsUrl)
    const afterApi = await scrape(tiers.metricsUrl)
    const grown = (name: string, labels: Record<string, string>) =>
      sumOf(after, name, labels) - sumOf(before, name, labels)
    expect(grown('millrace_queue_wait_seconds_count', CHAT)).toBe(2)
    expect(grown('gen_ai_server_time_to_first_token_seconds_count', CHAT)).toBe(2)
    expect(grown('gen_ai_server_time_to_first_token_seconds_sum', CHAT)).toBeGreaterThan(0)
    const output = { ...CHAT, gen_ai_token_type: 'output' }
    const input = { ...CHAT, gen_ai_token_type: 'input' }
    const { prompt_tokens, completion_tokens } = answer.usage
    // Greedy decoding is not asked for, so only the first of the two is known to the token.
    expect(grown('gen_ai_client_token_usage_sum', input)).toBe(2 * prompt_tokens)
    expect(grown('gen_ai_client_token_usage_sum', output)).toBeGreaterThanOrEqual(completion_tokens)
    const tokens = grown('gen_ai_client_token_usage_sum', output)
    expect(grown('gen_ai_server_time_per_output_token_seconds_count', CHAT)).toBe(tokens - 2)
    expect(grown('gen_ai_client_token_usage_count', { ...EMBED, gen_ai_token_type: 'input' })).toBe(
      1,
    )
    expect(grown('millrace_batch_size_count', { kind: 'completion' })).toBeGreaterThan(0)
    expect(grown('millrace_batch_size_sum', { kind: 'embedding' })).toBe(3)
    expect(grown('millrace_prefix_cache_queries_total', { kind: 'completion' })).toBe(
      2 * prompt_tokens,
    )
    expect(grown('millrace_prefix_cache_hits_total', { kind: 'completion' })).toBeGreaterThan(0)
    const jobs = { ...CHAT, error_type: '' }
    expect(
      sumOf(afterApi, 'gen_ai_server_request_duration_seconds_count', jobs) -
        sumOf(beforeApi, 'gen_ai_server_request_duration_seconds_count', jobs),
    ).toBe(2)
  })

  it('measures the longest of several candidates', async () => {
    const name = 'millrace_longest_candidate_tokens'
    const before = await scrape(worker.metricsUrl)
    await chat({ n: 3, min_tokens: 8, temperature: 1 })
    const grown = async (part: string): Promise<number> =>
      sumOf(await scrape(worker.metricsUrl), name + part, CHAT) - sumOf(before, name + part, CHAT)
    await expect.poll(() => grown('_count')).toBe(1)
    expect(await grown('_sum')).toBe(8)
  })

  it('counts a client that disconnects as a cancellation and as 499', async () => {
    const abort = new AbortController()
    // No worker serves this model, so its job waits.
    const form = new FormData()
    form.set('model', 'tiny-whisper')
    const clip = await readFile(join(import.meta.dirname, '../../fixtures/audio/de-1.wav'))
    form.set('file', new Blob([clip]), 'clip.wav')
    const answer = fetch(`${tiers.url}/v1/audio/transcriptions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${tiers.apiKey}` },
      body: form,
      signal: abort.signal,
    }).catch((error: Error) => error.name)
    const inFlight = async () => sumOf(await scrape(tiers.metricsUrl), 'millrace_jobs_under_way')
    await expect.poll(inFlight).toBe(1)
    abort.abort()
    expect(await answer).toBe('AbortError')
    await expect
      .poll(async () => {
        const samples = await scrape(tiers.metricsUrl)
        return [
          sumOf(samples, 'millrace_job_cancellations_total'),
          sumOf(samples, 'http_server_request_duration_seconds_count', {
            http_route: '/v1/audio/transcriptions',
            http_response_status_code: '499',
          }),
          sumOf(samples, 'millrace_jobs_under_way'),
        ]
      })
      .toEqual([1, 1, 0])
  })

  it('report the pools, the password hashes, the event loop and the storage', async () => {
    const email = `${Math.random()}@example.test`
    const signup = await fetch(`${tiers.url}/signup`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ email, password: 'a long enough password' }),
    })
    expect(signup.status).toBe(200)
    const form = new FormData()
    form.set('purpose', 'search')
    form.set('file', new Blob(['{"text":"a document"}\n']), 'documents.jsonl')
    const upload = await fetch(`${tiers.url}/v1/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${tiers.apiKey}` },
      body: form,
    })
    expect(upload.status).toBe(200)
    const samples = await scrape(tiers.metricsUrl)
    for (const name of [
      'db_client_operation_duration_seconds_count',
      'db_client_connection_count',
      'millrace_password_hash_duration_seconds_count',
      'millrace_object_store_duration_seconds_count',
      'nodejs_eventloop_lag_p99_seconds',
      'process_resident_memory_bytes',
      'millrace_workers_ready',
      'millrace_worker_slots_offered',
      'millrace_redis_up',
      'millrace_auth_events_total',
    ]) {
      expect(sumOf(samples, name), name).toBeGreaterThan(0)
    }
    expect(sumOf(samples, 'millrace_queue_jobs', { queue: 'completion.tiny-chat' })).toBe(0)
  })

  it("adds vLLM's names when asked to, with the same numbers", async () => {
    await chat()
    const model = { model_name: 'tiny-chat' }
    let samples: Awaited<ReturnType<typeof scrape>> = []
    // A client has its answer a moment before the run is over.
    const numRunning = async (): Promise<number> => {
      samples = await scrape(worker.metricsUrl)
      return sumOf(samples, 'vllm:num_requests_running', model)
    }
    await expect.poll(numRunning).toBe(0)
    const of = (name: string) => sumOf(samples, `vllm:${name}`, model)
    const ours = { gen_ai_request_model: 'tiny-chat', gen_ai_token_type: 'output' }
    expect(of('generation_tokens_total')).toBe(
      sumOf(samples, 'gen_ai_client_token_usage_sum', ours),
    )
    expect(of('prompt_tokens_total')).toBeGreaterThan(0)
    expect(of('time_to_first_token_seconds_count')).toBeGreaterThan(0)
    expect(of('num_requests_waiting')).toBe(0)
    expect(of('request_max_num_generation_tokens_count')).toBe(
      of('request_generation_tokens_count'),
    )
    expect(of('request_max_num_generation_tokens_sum')).toBeGreaterThan(0)
    const cache = samples.filter(({ name }) => name === 'vllm:cache_config_info')
    const served = { kind: 'completion', gen_ai_request_model: 'tiny-chat' }
    const slots = sumOf(samples, 'millrace_worker_slots', served)
    // The context window in the model's config.json.
    const size = { block_size: '1024', num_gpu_blocks: String(slots) }
    expect(cache).toEqual([
      { name: 'vllm:cache_config_info', labels: { ...model, ...size }, value: 1 },
    ])
    expect(of('request_params_n_count')).toBeGreaterThan(0)
    expect(of('request_params_max_tokens_sum')).toBe(8 * of('request_params_max_tokens_count'))
    const [prefill, decode, inference] = ['prefill', 'decode', 'inference'].map((phase) =>
      of(`request_${phase}_time_seconds_sum`),
    )
    expect(prefill).toBeGreaterThan(0)
    expect((prefill ?? 0) + (decode ?? 0)).toBeCloseTo(inference ?? 0, 6)
    expect(of('request_inference_time_seconds_count')).toBeGreaterThan(0)
    // Steps of aborted requests, too.
    expect(of('iteration_tokens_total_sum')).toBeGreaterThanOrEqual(of('generation_tokens_total'))
    expect(of('iteration_tokens_total_count')).toBeGreaterThan(0)
    expect(of('kv_cache_usage_perc')).toBe(0)
    const buckets = samples.filter(({ name }) => name === 'vllm:time_to_first_token_seconds_bucket')
    expect(buckets.at(-1)?.labels.le).toBe('+Inf')
    const api = await scrape(tiers.metricsUrl)
    expect(sumOf(api, 'vllm:e2e_request_latency_seconds_count', model)).toBeGreaterThan(0)
    expect(sumOf(api, 'vllm:request_success_total', model)).toBeGreaterThan(0)
  })

  it('serves metrics only at / and /metrics, only to readers, and in bounded number', async () => {
    for (const url of [tiers.metricsUrl, worker.metricsUrl]) {
      const [root, named] = await Promise.all(
        ['/', '/metrics'].map(async (path) => fetch(`${url}${path}`)),
      )
      expect(root?.headers.get('content-type')).toContain('text/plain; version=0.0.4')
      expect(named?.status).toBe(200)
      const samples = parseMetrics((await root?.text()) ?? '')
      expect(samples.length).toBeLessThan(SERIES_MAX)
      expect((await fetch(`${url}/metrics/secret`)).status).toBe(404)
      expect((await fetch(url, { method: 'POST', body: 'x' })).status).toBe(405)
    }
    // Nothing of it on the port that is open to the world.
    expect((await fetch(`${tiers.url}/metrics`)).status).toBe(404)
  })
})
