import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { SignJWT } from 'jose'
import { inject } from 'vitest'

import { openFaultTiers, type TierProcess } from '#test/support/fault-tiers.ts'
import { startMailCatcher } from '#test/support/mail-catcher.ts'
import { createDatabase } from '#test/support/services.ts'
import { IMAGE_MODEL, TEXT_MODELS } from '#test/support/small-models.ts'
import { API_KEY, apiEnv } from '#test/support/tiers.ts'

import { type Document, listOperations, type Operation } from './document.ts'
import type { Claim, Known } from './requests.ts'

const FIXTURES = join(import.meta.dirname, '../fixtures')

/** A real API process and a real worker, to be sent anything at all. */
export interface FuzzTarget {
  readonly url: string
  readonly api: TierProcess
  readonly worker: TierProcess
  readonly operations: readonly Operation[]
  /** The ids and names that requests may use. */
  readonly known: Known
  /**
   * Creates a user, so that a sign-out affects no other request; returns the proof of each claim.
   */
  newClaims(operation: Operation): Promise<Record<Claim, string>>
  /** Lines of both logs that speak of a bug. */
  complaints(): string[]
  close(): Promise<void>
}

/** Limits have tests of their own; here they would hide what lies behind them. */
export const UNLIMITED = {
  AUTH_RATE_LIMIT_EMAIL_SENT: '1000000',
  AUTH_RATE_LIMIT_SMS_SENT: '1000000',
  AUTH_RATE_LIMIT_TOKEN_REFRESH: '1000000',
  MILLRACE_SESSION_REFRESHES_PER_HOUR: '0',
  MILLRACE_USER_CHANGES_PER_HOUR: '0',
  AUTH_RATE_LIMIT_VERIFY: '1000000',
  AUTH_RATE_LIMIT_OTP: '1000000',
  AUTH_RATE_LIMIT_ANONYMOUS_USERS: '1000000',
  AUTH_MFA_RATE_LIMIT_CHALLENGE_AND_VERIFY: '1000000',
  AUTH_MAILER_AUTOCONFIRM: 'true',
  AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true',
  AUTH_SECURITY_MANUAL_LINKING_ENABLED: 'true',
  AUTH_EXTERNAL_GITHUB_ENABLED: 'true',
  AUTH_EXTERNAL_GITHUB_CLIENT_ID: 'id',
  AUTH_EXTERNAL_GITHUB_SECRET: 'secret',
  AUTH_EXTERNAL_GITHUB_REDIRECT_URI: 'http://127.0.0.1/callback',
  // A hash that costs nothing leaves more time for requests.
  MILLRACE_ARGON2_MEMORY_KIB: '1024',
  MILLRACE_ARGON2_ITERATIONS: '2',
}

/** Starts both processes and makes one thing of every kind. */
export async function openFuzzTarget(): Promise<FuzzTarget> {
  const [database, mail] = [await createDatabase(), await startMailCatcher()]
  const folder = await mkdtemp(join(tmpdir(), 'millrace-fuzz-'))
  const catalogue = join(folder, 'models.json')
  await writeFile(catalogue, JSON.stringify({ models: CATALOGUE }))
  const tiers = openFaultTiers({
    databaseUrl: database.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: `fuzz-${randomUUID().slice(0, 8)}`,
    env: {
      ...UNLIMITED,
      MILLRACE_CATALOGUE: catalogue,
      MILLRACE_WORKER_MODELS: '',
      AUTH_SMTP_PORT: String(mail.port),
      AUTH_SMTP_MAX_FREQUENCY: '0',
    },
  })
  const close = async (): Promise<void> => {
    await tiers.stop()
    await mail.stop()
    await database.drop()
    await rm(folder, { recursive: true, force: true })
  }
  try {
    const [api, worker] = await Promise.all([tiers.startApi(), tiers.startWorker()])
    const document = (await (await fetch(`${api.url}/openapi.json`)).json()) as Document
    return {
      url: api.url,
      api,
      worker,
      close,
      operations: listOperations(document),
      known: await learn(api.url),
      newClaims: (operation) => newClaims(api.url, operation),
      complaints: () =>
        [api, worker].flatMap(({ logFile }) =>
          readFileSync(logFile, 'utf8')
            .split('\n')
            .filter((line) => /"level":"?(error|fatal|50|60)|unhandled/i.test(line)),
        ),
    }
  } catch (error) {
    await close()
    throw error
  }
}

async function newClaims(url: string, operation: Operation): Promise<Record<Claim, string>> {
  const service = await serviceToken()
  const { access_token: user } = await call(url, 'POST', '/signup', '', {
    email: `${randomUUID()}@example.com`,
    password: 'correct horse battery',
  })
  const isAdmin = /\/(admin|invite)/.test(operation.path)
  const own = operation.surface === 'v1' ? API_KEY : isAdmin ? service : user
  return { own, key: API_KEY, user, service, none: '', broken: `${user.slice(0, -3)}abc` }
}

/** An access token of the service role. */
export function serviceToken(): Promise<string> {
  const secret = apiEnv('', 0).AUTH_JWT_SECRET
  return new SignJWT({ role: 'service_role' })
    .setProtectedHeader({ alg: 'HS256' })
    .setAudience('authenticated')
    .setIssuedAt()
    .setExpirationTime('2h')
    .sign(new TextEncoder().encode(secret))
}

/** Makes things, so that requests can name some that exist. */
async function learn(url: string): Promise<Known> {
  const own = (path: string, body: unknown) => call(url, 'POST', path, API_KEY, body)
  const upload = async (purpose: string, name: string, content: string): Promise<string> => {
    const form = new FormData()
    form.append('purpose', purpose)
    form.append('file', new Blob([content]), name)
    return (await own('/v1/files', form)).id
  }
  const line = { custom_id: 'a', method: 'POST', url: '/v1/embeddings', body: EMBED }
  const batchFile = await upload('batch', 'lines.jsonl', JSON.stringify(line))
  const searchFile = await upload('search', 'documents.jsonl', '{"text":"a mill"}\n{"text":"b"}\n')
  const batch = await own('/v1/batches', {
    input_file_id: batchFile,
    endpoint: '/v1/embeddings',
    completion_window: '24h',
  })
  const { id: activity } = await own('/v1/activities', { type: 'Like', object: 'doc:1' })
  const { id: spareKey } = await own('/v1/api_keys', { name: 'spare' })
  const { data } = await call(url, 'GET', '/v1/organizations', API_KEY)
  const user = await call(url, 'POST', '/admin/users', await serviceToken(), {
    email: 'somebody@example.com',
    password: 'correct horse',
    email_confirm: true,
  })
  return {
    ids: {
      model: MODEL_IDS,
      engine_id: MODEL_IDS,
      activity_id: [activity],
      user_id: [user.id],
      file_id: [batchFile, searchFile],
      batch_id: [batch.id],
      id: [data?.[0]?.id ?? 'x'],
      '/v1/api_keys/{id} id': [spareKey],
      '/v1/api_keys/{id}/rotate id': [spareKey],
    },
    hints: {
      ...HINTS,
      file: [searchFile],
      input_file_id: [batchFile],
      email: ['somebody@example.com', 'new.one@example.com', 'a+b@example.org'],
    },
    files: FILES,
  }
}

async function call(url: string, method: string, path: string, bearer: string, body?: unknown) {
  const isForm = body instanceof FormData
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: {
      ...(bearer !== '' && { authorization: `Bearer ${bearer}` }),
      ...(body !== undefined && !isForm && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: isForm ? body : JSON.stringify(body) }),
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${method} ${path} was answered ${answer.status}: ${text}`)
  return JSON.parse(text)
}

const EMBED = { model: 'embed', input: 'x' }
const CATALOGUE = [
  ...TEXT_MODELS,
  IMAGE_MODEL,
  { id: 'speech', kind: 'audio', source: join(FIXTURES, 'models/whisper') },
  {
    id: 'sparse',
    kind: 'embedding',
    source: join(FIXTURES, 'models/splade'),
    capabilities: ['sparse'],
  },
  {
    id: 'tokens',
    kind: 'embedding',
    source: join(FIXTURES, 'models/pylate'),
    capabilities: ['multi-vector'],
  },
]
const MODEL_IDS = CATALOGUE.map(({ id }) => id)

const HINTS = {
  model: [...MODEL_IDS, 'chat'],
  max_tokens: [1, 2, 5],
  max_completion_tokens: [1, 3],
  n: [1, 1, 2],
  best_of: [null, 2],
  steps: [1, 2],
  size: ['256x256', '64x64'],
  endpoint: ['/v1/embeddings'],
  completion_window: ['24h'],
  password: ['correct horse', 'correct horse battery'],
  grant_type: ['password', 'refresh_token', 'pkce', 'id_token'],
  factor_type: ['totp', 'phone'],
  type: ['text', 'function', 'signup', 'recovery', 'email', 'magiclink', 'email_change'],
  provider: ['github', 'google'],
  redirect_to: ['http://127.0.0.1/', 'https://evil.example/', 'https://127.0.0.1@evil.example'],
  ban_duration: ['24h', 'none', '-1h', '9999999999999h'],
  expires_at: [4102444800],
  purpose: ['search', 'batch', 'fine-tune', 'user_data', 'answers'],
  role: ['user', 'system', 'assistant', 'tool', 'member', 'admin'],
  content: ['Hello.', 'What is the capital of France?'],
} as const

const bytesOf = (path: string): string => readFileSync(join(FIXTURES, path)).toString('latin1')

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
).toString('latin1')

const FILES = {
  file: [
    '{"text":"a mill"}\n',
    '{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}}\n',
    bytesOf('audio/en-1.wav').slice(0, 32_044),
    bytesOf('audio/en-4.mp3').slice(0, 8000),
  ],
  image: [PNG],
  mask: [PNG],
} as const
