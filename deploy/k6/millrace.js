// Load tests of a running Millrace with k6:
//
//   k6 run -e SCENARIO=smoke -e BASE_URL=http://localhost:8081 -e API_KEY=mr-… deploy/k6/millrace.js
//
// SCENARIO: smoke, load, stress, spike, soak. RATE: arrivals per second at the plateau (default 10).
// Arrivals do not wait for answers (an open model), so a slow server cannot slow its own test down.
// k6 reads a stream as a whole: it counts streams and their length, not the time to the first token.
import { check } from 'k6'
import encoding from 'k6/encoding'
import http from 'k6/http'
import { Rate, Trend } from 'k6/metrics'

const BASE_URL = __ENV.BASE_URL || 'http://localhost:8081'
const RATE = Number(__ENV.RATE || 10)
const MODEL = __ENV.MODEL || 'tiny-chat'
const EMBEDDING_MODEL = __ENV.EMBEDDING_MODEL || 'tiny-embed'

const chatSeconds = new Trend('chat_seconds')
const streamSeconds = new Trend('stream_seconds')
const embeddingSeconds = new Trend('embedding_seconds')
const refused = new Rate('refused')

// What each scenario's arrivals do over time, as shares of RATE.
const SHAPES = {
  smoke: [[0.1, '10s']],
  load: [
    [1, '30s'],
    [1, '2m'],
    [0, '10s'],
  ],
  stress: [
    [1, '1m'],
    [2, '1m'],
    [4, '1m'],
    [8, '1m'],
    [0, '30s'],
  ],
  spike: [
    [0.5, '30s'],
    [10, '10s'],
    [10, '30s'],
    [0.5, '10s'],
    [0.5, '1m'],
  ],
  soak: [
    [1, '1m'],
    [1, '1h'],
    [0, '1m'],
  ],
}

// What each kind of request weighs in the mix.
const MIX = [
  ['chat', 0.4],
  ['stream', 0.3],
  ['embeddings', 0.2],
  ['files', 0.05],
  ['signIn', 0.05],
]

const shape = SHAPES[__ENV.SCENARIO || 'smoke']
if (shape === undefined)
  throw new Error(`SCENARIO must be one of ${Object.keys(SHAPES).join(', ')}`)

export const options = {
  scenarios: Object.fromEntries(
    MIX.map(([name, share]) => [
      name,
      {
        executor: 'ramping-arrival-rate',
        exec: name,
        timeUnit: '1m',
        startRate: Math.max(1, Math.round(60 * RATE * share * shape[0][0])),
        preAllocatedVUs: 20,
        maxVUs: 500,
        stages: shape.map(([factor, duration]) => ({
          target: Math.round(60 * RATE * share * factor),
          duration,
        })),
      },
    ]),
  ),
  thresholds: {
    checks: [{ threshold: 'rate>0.999', abortOnFail: true, delayAbortEval: '10s' }],
    dropped_iterations: ['count==0'],
    'http_req_failed{expected:yes}': ['rate<0.001'],
    chat_seconds: ['p(99)<5'],
    stream_seconds: ['p(99)<5'],
    embedding_seconds: ['p(99)<2'],
  },
}

const json = { 'content-type': 'application/json', authorization: `Bearer ${__ENV.API_KEY}` }

/** A server that is full says so: that is a refusal, not a fault. */
function answered(response, checks) {
  const isRefused = response.status === 429 || response.status === 503
  refused.add(isRefused)
  if (isRefused) {
    check(response, { 'says when to come back': (r) => Number(r.headers['Retry-After']) > 0 })
    return
  }
  check(response, checks)
}

export function chat() {
  const body = {
    model: MODEL,
    max_tokens: 32,
    messages: [{ role: 'user', content: `What is ${__ITER} + 7?` }],
  }
  const response = http.post(`${BASE_URL}/v1/chat/completions`, JSON.stringify(body), {
    headers: json,
  })
  answered(response, {
    'chat answers 200': (r) => r.status === 200,
    'chat has text': (r) => r.json('choices.0.message.content').length > 0,
    'chat counts its tokens': (r) => r.json('usage.total_tokens') > 0,
  })
  chatSeconds.add(response.timings.duration / 1000)
}

export function stream() {
  const body = {
    model: MODEL,
    max_tokens: 64,
    stream: true,
    messages: [{ role: 'user', content: 'Tell me a story.' }],
  }
  const response = http.post(`${BASE_URL}/v1/chat/completions`, JSON.stringify(body), {
    headers: json,
  })
  answered(response, {
    'stream answers 200': (r) => r.status === 200,
    'stream is whole': (r) => r.body.endsWith('data: [DONE]\n\n'),
    'stream has no error': (r) => !r.body.includes('"error"'),
  })
  streamSeconds.add(response.timings.duration / 1000)
}

export function embeddings() {
  const body = { model: EMBEDDING_MODEL, input: `The ${__ITER}th blue boat is near the river.` }
  const response = http.post(`${BASE_URL}/v1/embeddings`, JSON.stringify(body), { headers: json })
  answered(response, {
    'embeddings answer 200': (r) => r.status === 200,
    'embeddings have numbers': (r) => r.json('data.0.embedding').length > 0,
  })
  embeddingSeconds.add(response.timings.duration / 1000)
}

export function files() {
  const form = { purpose: 'user_data', file: http.file(`line ${__ITER}\n`, 'load.txt') }
  const headers = { authorization: json.authorization }
  const response = http.post(`${BASE_URL}/v1/files`, form, { headers })
  answered(response, { 'upload answers 200': (r) => r.status === 200 })
  if (response.status !== 200) return
  const id = response.json('id')
  check(http.get(`${BASE_URL}/v1/files/${id}/content`, { headers }), {
    'download gives the bytes back': (r) => r.body === `line ${__ITER}\n`,
  })
  check(http.del(`${BASE_URL}/v1/files/${id}`, null, { headers }), {
    'delete answers 200': (r) => r.status === 200,
  })
}

/** Signs in a user that does not exist: the whole cost of a sign-in, and no mail. */
export function signIn() {
  const body = {
    email: `nobody-${encoding.b64encode(String(__VU), 'rawurl')}@example.com`,
    password: 'not the password',
  }
  const response = http.post(
    `${BASE_URL}/auth/v1/token?grant_type=password`,
    JSON.stringify(body),
    {
      headers: { 'content-type': 'application/json' },
      responseCallback: http.expectedStatuses(400, 429),
    },
  )
  check(response, { 'sign-in refuses a stranger': (r) => r.status === 400 || r.status === 429 })
}

export function handleSummary(data) {
  const file = __ENV.SUMMARY || 'k6-summary.json'
  const rows = Object.entries(data.metrics)
    .filter(([, metric]) => metric.thresholds !== undefined)
    .map(
      ([name, { thresholds }]) =>
        `${Object.values(thresholds).every(({ ok }) => ok) ? 'met  ' : 'SHORT'} ${name}`,
    )
  return { stdout: `${rows.join('\n')}\n`, [file]: JSON.stringify(data, null, 2) }
}
