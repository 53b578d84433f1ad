import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { arrivedUntil, durationMs } from '../../../bench/support/k6/arrivals.ts'
import { Metric } from '../../../bench/support/k6/metrics.ts'
import { thresholdsOf } from '../../../bench/support/k6/thresholds.ts'

const ROOT = join(import.meta.dirname, '../../..')
const SCENARIOS = join(ROOT, 'deploy/k6/millrace.js')
const K6 = join(homedir(), 'go/bin/k6')
const TIMEOUT_MS = 120_000
const CHAT = { choices: [{ message: { content: 'Hi' } }], usage: { total_tokens: 3 } }
const STREAM = 'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'

/** The answers of Millrace, as far as the scenarios read them. */
const ANSWERS: readonly [RegExp, (body: string) => string][] = [
  [/completions$/, (body) => (body.includes('"stream":true') ? '' : JSON.stringify(CHAT))],
  [/embeddings$/, () => JSON.stringify({ data: [{ embedding: [1, 2] }] })],
  [/generations$/, () => JSON.stringify({ data: [{ url: 'http://x/y.png' }] })],
  [/transcriptions$/, () => JSON.stringify({ text: '' })],
  [/files$/, (body) => JSON.stringify({ id: /line \d+/.exec(body)?.[0].slice(5) })],
  [/files\/\d+$/, () => '{}'],
  [/\/(healthz|readyz|openapi\.json|health|settings)$/, () => '{}'],
  [/\/v1\/(models|usage|activities|batches|jobs|responses|messages|rerank|tokenize)$/, () => '{}'],
]

let fault: number | undefined
let seen: string[] = []
const server = createServer((request, response) => void answer(request, response))
let base = ''
let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-load-'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(async () => {
  server.closeAllConnections()
  server.close()
  await rm(folder, { recursive: true })
})

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  let body = ''
  for await (const chunk of request) body += (chunk as Buffer).toString('latin1')
  const path = request.url ?? ''
  seen.push(`${request.method} ${path.replace(/files\/\d+/, 'files/…')}`)
  if (fault !== undefined) {
    response.writeHead(fault, fault === 503 ? { 'retry-after': '1' } : {}).end('{}')
    return
  }
  const download = /files\/(\d+)\/content/.exec(path)?.[1]
  if (download !== undefined) response.end(`line ${download}\n`)
  else if (path.includes('/token?')) response.writeHead(400).end('{}')
  else {
    const text = ANSWERS.find(([pattern]) => pattern.test(path))?.[1](body)
    if (text === '') {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end(`${STREAM}data: [DONE]\n\n`)
    } else response.writeHead(text === undefined ? 404 : 200).end(text)
  }
}

interface Summary {
  readonly metrics: Record<string, { thresholds?: Record<string, { ok: boolean }> }>
}

/** Runs the scenario file; all kinds arrive within a few seconds. */
async function run(command: string, args: readonly string[], scenario: string) {
  seen = []
  const summary = join(folder, `${scenario}.json`)
  // A second of a smoke at a tenth of the rate; a spike of five seconds at ten times it.
  const rate = scenario === 'smoke' ? '600' : '5'
  const settings = { SCENARIO: scenario, RATE: rate, TIME_FACTOR: '0.02', BASE_URL: base }
  const env = { ...process.env, ...settings, API_KEY: 'x', SUMMARY: summary }
  const child = spawn(command, args, { env, cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString()
    })
  }
  const code = await new Promise((resolve) => child.once('exit', resolve))
  const { metrics } = JSON.parse(await readFile(summary, 'utf8')) as Summary
  return { code, output, metrics }
}

// The scenario file under k6 itself too, where it is at hand.
const GENERATORS: readonly (readonly [string, string, readonly string[]])[] = [
  ['node bench/load.ts', process.execPath, [join(ROOT, 'bench/load.ts'), SCENARIOS]],
  ...(existsSync(K6) ? [['k6', K6, ['run', '-q', SCENARIOS]] as const] : []),
]

describe.each(GENERATORS)('the load scenarios by %s', (name, command, args) => {
  it('send every kind of request and meet their levels', { timeout: TIMEOUT_MS }, async () => {
    fault = undefined
    const { code, output, metrics } = await run(command, args, 'smoke')
    expect([code, output]).toEqual([0, expect.not.stringMatching(/SHORT|unseen/)])
    expect(new Set(seen)).toEqual(
      new Set([
        ...['POST /v1/chat/completions', 'POST /v1/embeddings', 'POST /v1/images/generations'],
        ...['POST /v1/audio/transcriptions', 'POST /v1/files', 'GET /v1/files/…/content'],
        ...['DELETE /v1/files/…', 'POST /auth/v1/token?grant_type=password'],
        ...['GET /healthz', 'GET /readyz', 'GET /openapi.json', 'GET /auth/v1/health'],
        ...['GET /auth/v1/settings', 'GET /v1/models', 'GET /v1/files', 'GET /v1/usage'],
        ...['GET /v1/activities', 'GET /v1/batches', 'GET /v1/jobs', 'POST /v1/completions'],
        ...['POST /v1/responses', 'POST /v1/messages', 'POST /v1/rerank', 'POST /v1/tokenize'],
      ]),
    )
    expect(Object.keys(metrics)).toEqual(expect.arrayContaining(['checks', 'chat_seconds']))
    if (name !== 'k6') expect(output).toMatch(/time_to_first_token_ms: p50 [\d.]+, p99/)
  })

  it.each([
    ['faults', 500, 'smoke', ['checks', 'http_req_failed']],
    ['refusals of a load that was planned for', 503, 'smoke', ['refused']],
    ['refusals of a spike', 503, 'spike', []],
  ])('tell %s', { timeout: TIMEOUT_MS }, async (_title, status, scenario, short) => {
    fault = status
    const { code, metrics } = await run(command, args, scenario)
    const crossed = Object.entries(metrics)
      .filter(([, { thresholds = {} }]) => Object.values(thresholds).some(({ ok }) => !ok))
      .map(([metric]) => metric)
    expect(crossed.sort()).toEqual(short)
    expect(code).toBe(short.length > 0 ? 99 : 0)
  })
})

describe('the arrivals', () => {
  const scenario = {
    executor: 'ramping-arrival-rate',
    exec: 'x',
    timeUnit: '1m',
    maxVUs: 1,
    startRate: 60,
    stages: [
      { target: 60, duration: '10s' },
      { target: 180, duration: '10s' },
      { target: 0, duration: '1m' },
    ],
  }

  it.each([
    [0, 0],
    [5000, 5],
    [10_000, 10],
    [15_000, 17],
    [20_000, 30],
    [80_000, 120],
    [90_000, 120],
  ])('until %i ms are %i', (elapsedMs, wanted) => {
    expect(arrivedUntil(scenario, elapsedMs)).toBe(wanted)
  })

  it('refuse an invalid duration', () => {
    expect(durationMs('2m')).toBe(120_000)
    expect(() => durationMs('soon')).toThrow('no duration')
  })
})

it('judges thresholds like k6, and refuses invalid ones', () => {
  const trend = new Metric('trend')
  for (let value = 1; value <= 100; value += 1) trend.add(value)
  const rate = new Metric('rate')
  for (const value of [true, true, true, false]) rate.add(value)
  const metrics = new Map(Object.entries({ trend, rate, none: new Metric('trend') }))
  const wanted = { trend: ['p(99)<100', 'max<100'], rate: ['rate>0.7'], none: ['p(95)<1'] }
  const judged = Object.fromEntries(thresholdsOf(wanted, metrics))
  expect(judged).toEqual({
    trend: { 'p(99)<100': { ok: false }, 'max<100': { ok: false } },
    rate: { 'rate>0.7': { ok: true } },
    none: { 'p(95)<1': { ok: true } },
  })
  expect(() => thresholdsOf({ rate: ['rather small'] }, metrics)).toThrow('no threshold')
})
