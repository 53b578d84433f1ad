// Load tests of a running Millrace with k6:
//
//   k6 run -e SCENARIO=smoke -e BASE_URL=http://localhost:8081 -e API_KEY=mr-… deploy/k6/millrace.js
//
// SCENARIO: smoke, load, stress, spike, soak. RATE: arrivals per second at the plateau (default 10).
// TIME_FACTOR: 0.1 takes a tenth of the time. Arrivals do not wait for answers (an open model), so a slow
// server cannot slow its own test down. k6 reads a stream as a whole: it counts streams and their length,
// not the time to the first token. `node bench/load.ts` runs this file without k6, and measures that too.
import { check } from 'k6'
import encoding from 'k6/encoding'
import http from 'k6/http'
import { Rate, Trend } from 'k6/metrics'

const BASE_URL = __ENV.BASE_URL || 'http://localhost:8081'
const RATE = Number(__ENV.RATE || 10)
const TIME_FACTOR = Number(__ENV.TIME_FACTOR || 1)
const MODEL = __ENV.MODEL || 'tiny-chat'
const EMBEDDING_MODEL = __ENV.EMBEDDING_MODEL || 'tiny-embed'
const AUDIO_MODEL = __ENV.AUDIO_MODEL || 'whisper-1'
const RERANK_MODEL = __ENV.RERANK_MODEL || 'tiny-rerank'

const chatSeconds = new Trend('chat_seconds')
const streamSeconds = new Trend('stream_seconds')
const embeddingSeconds = new Trend('embedding_seconds')
const imageSeconds = new Trend('image_seconds')
const audioSeconds = new Trend('audio_seconds')
const surfaceSeconds = new Trend('surface_seconds')
const refused = new Rate('refused')

// The arrival rate of each scenario over time: shares of RATE, and seconds.
const SHAPES = {
  smoke: [[0.1, 10]],
  load: [
    [1, 30],
    [1, 120],
    [0, 10],
  ],
  stress: [
    [1, 60],
    [2, 60],
    [4, 60],
    [8, 60],
    [0, 30],
  ],
  spike: [
    [0.5, 30],
    [10, 10],
    [10, 30],
    [0.5, 10],
    [0.5, 60],
  ],
  soak: [
    [1, 60],
    [1, 3600],
    [0, 60],
  ],
}

// The weight of each kind of request in the mix.
const MIX = [
  ['chat', 0.4],
  ['stream', 0.25],
  ['embeddings', 0.2],
  ['files', 0.04],
  ['surfaces', 0.01],
  ['signIn', 0.05],
  ['audio', 0.03],
  ['images', 0.02],
]

const scenario = __ENV.SCENARIO || 'smoke'
const shape = SHAPES[scenario]
if (shape === undefined)
  throw new Error(`SCENARIO must be one of ${Object.keys(SHAPES).join(', ')}`)

// Service levels under the planned load. Beyond it, requests wait up to their deadline or are
// refused with 429 or 503; no other failure is accepted.
const LEVELS = {
  chat_seconds: ['p(99)<5'],
  stream_seconds: ['p(99)<5'],
  embedding_seconds: ['p(99)<2'],
  image_seconds: ['p(99)<20'],
  audio_seconds: ['p(99)<10'],
  surface_seconds: ['p(99)<5'],
  refused: ['rate<0.001'],
}
const isPlanned = scenario !== 'stress' && scenario !== 'spike'

// A smoke is short: every kind of request comes at least twice, however small its share.
const PER_MINUTE_MIN = scenario === 'smoke' ? Math.ceil(12 / TIME_FACTOR) : 0
const perMinute = (factor, share) =>
  Math.max(PER_MINUTE_MIN, Math.round(60 * RATE * share * factor))
const PEAK = RATE * Math.max(...shape.map(([factor]) => factor))

export const options = {
  // The count distinguishes a level that was met from one of which nothing was seen.
  summaryTrendStats: ['count', 'avg', 'min', 'med', 'max', 'p(90)', 'p(95)', 'p(99)'],
  scenarios: Object.fromEntries(
    MIX.map(([name, share]) => [
      name,
      {
        executor: 'ramping-arrival-rate',
        exec: name,
        timeUnit: '1m',
        startRate: Math.max(1, perMinute(shape[0][0], share)),
        // Allocated beforehand, because k6 creates further ones too slowly for a spike.
        preAllocatedVUs: Math.min(500, Math.max(20, Math.ceil((isPlanned ? 1 : 8) * PEAK * share))),
        maxVUs: 500,
        stages: shape.map(([factor, seconds]) => ({
          target: perMinute(factor, share),
          duration: `${Math.max(1, Math.round(seconds * TIME_FACTOR))}s`,
        })),
      },
    ]),
  ),
  thresholds: {
    checks: [{ threshold: 'rate>0.999', abortOnFail: true, delayAbortEval: '10s' }],
    dropped_iterations: ['count==0'],
    http_req_failed: ['rate<0.001'],
    ...(isPlanned ? LEVELS : {}),
  },
}

if (!__ENV.API_KEY) throw new Error('API_KEY is missing: give -e API_KEY=mr-…')
const json = { 'content-type': 'application/json', authorization: `Bearer ${__ENV.API_KEY}` }
const withKey = { authorization: json.authorization }
// A full queue answers with an error body: a refusal, not a failure.
const ANSWERS = http.expectedStatuses(200, 429, 503)
const CLIP = tone(1)

function post(path, body, headers = json) {
  const content = headers === json ? JSON.stringify(body) : body
  const more = { headers, responseCallback: ANSWERS }
  return http.asyncRequest('POST', `${BASE_URL}${path}`, content, more)
}

function answered(response, checks, trend) {
  const isRefused = response.status === 429 || response.status === 503
  refused.add(isRefused)
  if (isRefused) {
    check(response, { 'says when to come back': (r) => Number(r.headers['Retry-After']) > 0 })
    return
  }
  // A failed answer has no body that the other checks could read.
  const [first] = Object.keys(checks)
  check(response, response.status < 400 ? checks : { [first]: () => false })
  if (trend !== undefined) trend.add(response.timings.duration / 1000)
}

export async function chat() {
  const response = await post('/v1/chat/completions', {
    model: MODEL,
    max_tokens: 32,
    messages: [{ role: 'user', content: `What is ${__ITER % 90} + 7?` }],
  })
  const checks = {
    'chat answers 200': (r) => r.status === 200,
    'chat has text': (r) => r.json('choices.0.message.content').length > 0,
    'chat counts its tokens': (r) => r.json('usage.total_tokens') > 0,
  }
  answered(response, checks, chatSeconds)
}

export async function stream() {
  const response = await post('/v1/chat/completions', {
    model: MODEL,
    max_tokens: 256,
    min_tokens: 200,
    stream: true,
    messages: [{ role: 'user', content: 'Tell me a story.' }],
  })
  const checks = {
    'stream answers 200': (r) => r.status === 200,
    'stream is whole': (r) => r.body.endsWith('data: [DONE]\n\n'),
    'stream has no error': (r) => !r.body.includes('"error"'),
  }
  answered(response, checks, streamSeconds)
}

export async function embeddings() {
  const input = `The ${__ITER}th blue boat is near the river.`
  const response = await post('/v1/embeddings', { model: EMBEDDING_MODEL, input })
  const checks = {
    'embeddings answer 200': (r) => r.status === 200,
    'embeddings have numbers': (r) => r.json('data.0.embedding').length > 0,
  }
  answered(response, checks, embeddingSeconds)
}

export async function images() {
  const prompt = 'a red circle on a white background'
  const response = await post('/v1/images/generations', { prompt, size: '256x256' })
  const checks = {
    'images answer 200': (r) => r.status === 200,
    'images have an address': (r) => r.json('data.0.url').startsWith('http'),
  }
  answered(response, checks, imageSeconds)
}

export async function audio() {
  const form = { model: AUDIO_MODEL, file: http.file(CLIP, 'tone.wav', 'audio/wav') }
  const response = await post('/v1/audio/transcriptions', form, withKey)
  const checks = {
    'audio answers 200': (r) => r.status === 200,
    'audio has text, if empty': (r) => typeof r.json('text') === 'string',
  }
  answered(response, checks, audioSeconds)
}

export async function files() {
  const text = `line ${__ITER}\n`
  const form = { purpose: 'user_data', file: http.file(text, 'load.txt') }
  const response = await post('/v1/files', form, withKey)
  answered(response, { 'upload answers 200': (r) => r.status === 200 })
  if (response.status !== 200) return
  const url = `${BASE_URL}/v1/files/${response.json('id')}`
  const read = await http.asyncRequest('GET', `${url}/content`, null, { headers: withKey })
  check(read, { 'download gives the bytes back': (r) => r.body === text })
  const gone = await http.asyncRequest('DELETE', url, null, { headers: withKey })
  check(gone, { 'delete answers 200': (r) => r.status === 200 })
}

const SURFACES = [
  ...['/healthz', '/readyz', '/openapi.json', '/auth/v1/health', '/auth/v1/settings'].map(get),
  ...['models', 'files', 'usage', 'activities', 'batches', 'jobs'].map((name) =>
    get(`/v1/${name}`),
  ),
  ['/v1/completions', { model: MODEL, prompt: 'Once', max_tokens: 4 }],
  ['/v1/responses', { model: MODEL, input: 'Hello', max_output_tokens: 16 }],
  ['/v1/messages', { model: MODEL, max_tokens: 4, messages: [{ role: 'user', content: 'Hello' }] }],
  ['/v1/rerank', { model: RERANK_MODEL, query: 'boats', documents: ['a blue boat', 'a tree'] }],
  ['/v1/tokenize', { model: MODEL, prompt: 'Once' }],
]

function get(path) {
  return [path, undefined]
}

/** Calls the surfaces that have no kind of their own: all of them in a smoke, else one after another. */
export async function surfaces() {
  const some = scenario === 'smoke' ? SURFACES : [SURFACES[__ITER % SURFACES.length]]
  for (const [path, body] of some) {
    const response =
      body === undefined
        ? await http.asyncRequest('GET', `${BASE_URL}${path}`, null, {
            headers: withKey,
            responseCallback: ANSWERS,
          })
        : await post(path, body)
    answered(response, { [`${path} answers 200`]: (r) => r.status === 200 }, surfaceSeconds)
  }
}

/** Signs in a user that does not exist: costs as much as a sign-in and sends no mail. */
export async function signIn() {
  const body = {
    email: `nobody-${encoding.b64encode(String(__VU), 'rawurl')}@example.com`,
    password: 'not the password',
  }
  const response = await http.asyncRequest(
    'POST',
    `${BASE_URL}/auth/v1/token?grant_type=password`,
    JSON.stringify(body),
    {
      headers: { 'content-type': 'application/json' },
      responseCallback: http.expectedStatuses(400, 429, 503),
    },
  )
  check(response, { 'sign-in refuses a stranger': (r) => [400, 429, 503].includes(r.status) })
}

/** A tone of so many seconds as a WAV file of 16 kHz. */
function tone(seconds) {
  const samples = 16_000 * seconds
  const view = new DataView(new ArrayBuffer(44 + 2 * samples))
  const words = [
    ['RIFF', 36 + 2 * samples],
    ['WAVE', undefined],
    ['fmt ', 16],
  ]
  let at = 0
  for (const [name, size] of words) {
    for (const letter of name) {
      view.setUint8(at, letter.charCodeAt(0))
      at += 1
    }
    if (size === undefined) continue
    view.setUint32(at, size, true)
    at += 4
  }
  // PCM, one channel, samples a second, bytes a second, bytes a frame, bits a sample, and then the data.
  view.setUint16(20, 1, true)
  view.setUint16(22, 1, true)
  view.setUint32(24, 16_000, true)
  view.setUint32(28, 32_000, true)
  view.setUint16(32, 2, true)
  view.setUint16(34, 16, true)
  view.setUint32(36, 0x61746164, true)
  view.setUint32(40, 2 * samples, true)
  for (let i = 0; i < samples; i += 1) {
    view.setInt16(44 + 2 * i, 8000 * Math.sin((2 * Math.PI * 440 * i) / 16_000), true)
  }
  return view.buffer
}

/** A level of which nothing was seen is not met. */
function verdictOf({ type, values, thresholds }) {
  const seen = type === 'rate' ? values.passes + values.fails : (values.count ?? 0)
  if (type !== 'counter' && seen === 0) return 'unseen'
  return Object.values(thresholds).every(({ ok }) => ok) ? 'met   ' : 'SHORT '
}

export function handleSummary(data) {
  const file = __ENV.SUMMARY || 'k6-summary.json'
  const rows = Object.entries(data.metrics)
    .filter(([, metric]) => metric.thresholds !== undefined)
    .map(([name, metric]) => `${verdictOf(metric)} ${name}`)
  return { stdout: `${rows.join('\n')}\n`, [file]: JSON.stringify(data, null, 2) }
}
