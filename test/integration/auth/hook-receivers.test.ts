import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'

import { createHooks } from '#api/auth/hooks/hooks.ts'
import { createHttpHook } from '#api/auth/hooks/http-hook.ts'
import { systemClock } from '#shared/clock.ts'
import type { HooksConfig } from '#shared/config/auth-hooks.ts'
import { type Database, openDatabase } from '#shared/db/client.ts'
import { createLogger, type Logger } from '#shared/logger.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'
import { createDatabase, it as inFolder } from '#test/support/services.ts'

import { HOOK_SECRET, isSignedWith } from './support/hook-receiver.ts'
import { readConfig } from './support/server.ts'

let peer: HttpPeer
let replies: PeerReply[]
let database: Database
let dropDatabase: () => Promise<void>

beforeAll(async () => {
  peer = await startHttpPeer(() => replies.shift() ?? { body: {} })
  const created = await createDatabase()
  dropDatabase = created.drop
  const logger = createLogger({ level: 'silent' })
  database = openDatabase({ url: created.url, maxPoolSize: 2, logger })
})
afterEach(() => {
  replies = []
})
afterAll(async () => {
  await peer.stop()
  await database.close()
  await dropDatabase()
})

const lines: string[] = []
const log: Logger = {
  ...createLogger({ level: 'silent' }),
  debug: (fields, message) => void lines.push(JSON.stringify({ fields, message })),
  warn: (fields, message) => void lines.push(JSON.stringify({ fields, message })),
}

const LIMITS = { httpMs: 2000, retryPauseMs: 1, functionMs: 200 }

function hooksOf(config: HooksConfig, limits: Partial<typeof LIMITS> = {}) {
  const { db } = database
  return createHooks({ config, db, clock: systemClock, log, limits: { ...LIMITS, ...limits } })
}

const OLD_SECRET = Buffer.alloc(24, 9)
const invoke = (limits?: Partial<typeof LIMITS>, url = `${peer.url}/hook?key=hidden-in-url`) => {
  const target = { kind: 'http', url, secrets: [HOOK_SECRET, OLD_SECRET] } as const
  return hooksOf({ sendSms: target }, limits).invoke('sendSms', { otp: '123456' })
}
const requestsOf = async (work: () => Promise<unknown>) => {
  const before = peer.requests.length
  const outcome = await work().catch((error: unknown) => error)
  return { outcome, requests: peer.requests.slice(before) }
}

describe('a hook over HTTP', () => {
  it('is posted as JSON and signed with every secret', async () => {
    replies = [{ body: { fine: true } }]
    const { outcome, requests } = await requestsOf(() => invoke())
    expect(outcome).toEqual({ fine: true })
    const [request] = requests
    expect(request).toMatchObject({ method: 'POST', path: '/hook', text: '{"otp":"123456"}' })
    expect(request?.headers).toMatchObject({ 'content-type': 'application/json' })
    const isSigned = [HOOK_SECRET, OLD_SECRET, Buffer.alloc(32, 1)].map(
      (secret) => request !== undefined && isSignedWith(secret, request),
    )
    expect(isSigned).toEqual([true, true, false])
    const age = Date.now() / 1000 - Number(request?.headers['webhook-timestamp'])
    expect(Math.abs(age)).toBeLessThan(10)
  })

  it('has the signature of the reference libraries', async () => {
    // From the tests of the Standard Webhooks libraries.
    const secret = Buffer.from('MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'base64')
    const target = { kind: 'http', url: `${peer.url}/hook`, secrets: [secret] } as const
    const clock = { now: () => 1_614_265_330_000, monotonic: () => 0 }
    const hook = createHttpHook({ clock, timeoutMs: 2000, retryPauseMs: 1, answerBytesMax: 1000 })
    const message = { id: 'msg_p5jXN8AQM9LWM0D4loKWxJek', text: '{"test": 2432232314}' }
    const { requests } = await requestsOf(() => hook(target, message))
    expect(requests[0]?.headers).toMatchObject({
      'webhook-timestamp': '1614265330',
      'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    })
  })

  it('is not signed without a secret, and a message at start names it', async () => {
    const target = { kind: 'http', url: `${peer.url}/hook`, secrets: [] } as const
    const { requests } = await requestsOf(() => hooksOf({ sendSms: target }).invoke('sendSms', {}))
    expect(requests[0]?.headers).not.toHaveProperty('webhook-signature')
    expect(lines.join('\n')).toContain(
      '"hook":"sendSms"},"message":"a hook over HTTP has no secret',
    )
  })

  it.each<[string, PeerReply, object]>([
    ['answers nothing', { status: 204, body: '', headers: { 'content-type': '' } }, {}],
    ['answers null', { body: null }, {}],
    ['accepts', { status: 202, body: { a: 1 } }, { a: 1 }],
  ])('that %s has not refused', async (_what, reply, answer) => {
    replies = [reply]
    expect(await invoke()).toEqual(answer)
  })

  it.each<[string, PeerReply, number, string, string]>([
    ['answers HTML', { body: '<p>' }, 400, 'hook_payload_invalid_content_type', 'text/html'],
    [
      'names no content type',
      { write: (outgoing) => void outgoing.end('{}') },
      ...([400, 'hook_payload_invalid_content_type', 'Missing Content-Type header'] as const),
    ],
    [
      'answers half an object',
      { body: '{"a":', headers: { 'content-type': 'application/json' } },
      ...([500, 'unexpected_failure', 'Error unmarshaling JSON output.'] as const),
    ],
    ['answers a list', { body: [] }, 500, 'unexpected_failure', 'Error unmarshaling JSON output.'],
    [
      'answers too much',
      { body: { text: 'x'.repeat(210_000) } },
      ...([422, 'hook_payload_over_size_limit', '204800 bytes'] as const),
    ],
    [
      'never ends its answer',
      {
        write: (outgoing) => {
          const more = () => void outgoing.write('x'.repeat(65_536), (error) => error ?? more())
          outgoing.writeHead(200, { 'content-type': 'application/json' })
          more()
        },
      },
      ...([422, 'hook_payload_over_size_limit', '204800 bytes'] as const),
    ],
    [
      'finds the payload bad',
      { status: 400, body: {} },
      500,
      'unexpected_failure',
      'Invalid payload',
    ],
    ['wants a password', { status: 401, body: {} }, 500, 'unexpected_failure', 'requires authoriz'],
    [
      'is a teapot',
      { status: 418, body: {} },
      500,
      'unexpected_failure',
      'status code returned from hook: 418',
    ],
    [
      'redirects',
      { status: 307, headers: { location: '/elsewhere' }, body: '' },
      ...([500, 'unexpected_failure', 'hook: 307'] as const),
    ],
    ['is busy', { status: 503, body: {} }, 500, 'unexpected_failure', 'currently unavailable'],
  ])('that %s fails at once', async (_what, reply, status, code, message) => {
    replies = [reply]
    const { outcome, requests } = await requestsOf(() => invoke())
    expect(outcome).toMatchObject({ status, code, message: expect.stringContaining(message) })
    expect(requests).toHaveLength(1)
  })

  it('fails within the time limit if its receiver does not answer', async () => {
    replies = ['hang']
    const message = 'Failed to reach hook within maximum time of 0.050000 seconds'
    const failed = { status: 422, code: 'hook_timeout', message }
    await expect(invoke({ httpMs: 50 })).rejects.toMatchObject(failed)
  })

  it('gets three attempts with one id if its receiver asks for another attempt', async () => {
    const busy = { status: 429, headers: { 'retry-after': '1' }, body: {} }
    replies = [busy, { ...busy, status: 503 }, { body: { fine: true } }]
    const { outcome, requests } = await requestsOf(() => invoke())
    expect(outcome).toEqual({ fine: true })
    const ids = requests.map(({ headers }) => headers['webhook-id'])
    expect(ids).toHaveLength(3)
    expect(new Set(ids).size).toBe(1)
    replies = [busy, busy, busy, { body: {} }]
    const { outcome: refused, requests: all } = await requestsOf(() => invoke())
    expect(refused).toMatchObject({ status: 500, code: 'unexpected_failure' })
    expect(all).toHaveLength(3)
  })

  it.each(['http://127.0.0.1:1/', 'http://nowhere.invalid/'])(
    'at %s, which cannot be reached, is given up after three attempts',
    async (url) => {
      const failed = { status: 422, code: 'hook_timeout_after_retry' }
      await expect(invoke({ httpMs: 20_000 }, url)).rejects.toMatchObject(failed)
      await expect(invoke({ httpMs: 300, retryPauseMs: 10_000 }, url)).rejects.toMatchObject({
        code: 'hook_timeout',
      })
    },
  )

  it('appears in the log only by its host', async () => {
    replies = [{ body: { error: { http_code: 403, message: 'not +4477 with 123456' } } }]
    await expect(invoke()).rejects.toThrow()
    const secrets = ['hidden-in-url', '123456', '4477', HOOK_SECRET.toString('base64')]
    for (const secret of secrets) expect(lines.join('\n')).not.toContain(secret)
    expect(lines.at(-1)).toContain(new URL(peer.url).host)
  })
})

describe('the error of a hook', () => {
  it.each<[object, number, string, string]>([
    [{ http_code: 403, message: 'Not here' }, 403, 'unknown', 'Not here'],
    [{ http_code: 429, message: 'Later' }, 429, 'unknown', 'Later'],
    [{ message: 'Broken' }, 500, 'unexpected_failure', 'Broken'],
    [{ http_code: 200, message: 'Confused' }, 500, 'unexpected_failure', 'Confused'],
    [{ http_code: '403', message: 'As text' }, 500, 'unexpected_failure', 'As text'],
    [{ http_code: 400 }, 400, 'unknown', 'The hook refused the request'],
    [{ http_code: 400, message: 'x'.repeat(2000) }, 400, 'unknown', 'x'.repeat(1000)],
  ])('%j is what the client reads', async (error, status, code, message) => {
    replies = [{ body: { error } }]
    const refused = { name: 'HookError', status, code, message }
    await expect(invoke()).rejects.toMatchObject(refused)
  })

  it('refuses nothing without a code and message', async () => {
    for (const error of [{}, null, 'text']) {
      replies = [{ body: { error } }]
      expect(await invoke()).toEqual({ error })
    }
  })
})

describe('a hook in Postgres', () => {
  const define = (body: string, returns = 'jsonb') =>
    database.pool.query(
      `create or replace function public.hook(event jsonb) returns ${returns} language plpgsql as $$ begin ${body} end $$`,
    )
  const ask = (schema = 'public') =>
    hooksOf({ sendSms: { kind: 'pgFunction', schema, name: 'hook' } }).invoke('sendSms', {
      otp: '1',
    })

  afterEach(() => database.pool.query('drop function if exists public.hook(jsonb)'))

  it('gets the payload and answers JSON', async () => {
    await define(`return jsonb_build_object('got', event->'otp');`)
    expect(await ask()).toEqual({ got: '1' })
  })

  it.each([
    ['refuses', `return '{"error":{"http_code":403,"message":"No"}}';`, 403, 'unknown', 'No'],
    [
      'raises',
      `raise exception 'secret detail';`,
      500,
      'unexpected_failure',
      'Error running the hook',
    ],
    ['is slow', 'perform pg_sleep(10); return null;', 500, 'unexpected_failure', 'Error running'],
    [
      'answers too much',
      `return jsonb_build_object('text', repeat('x', 210000));`,
      ...([422, 'hook_payload_over_size_limit', '204800 bytes'] as const),
    ],
  ])('that %s fails', async (_what, body, status, code, message) => {
    await define(body)
    await expect(ask()).rejects.toMatchObject({
      status,
      code,
      message: expect.stringContaining(message),
    })
  })

  it('does not refuse by returning void or null', async () => {
    await define('return null;')
    expect(await ask()).toEqual({})
    await database.pool.query('drop function public.hook(jsonb)')
    await define('return;', 'void')
    expect(await ask()).toEqual({})
  })

  it('fails if its function does not exist, even with SQL in its name', async () => {
    await expect(ask('nowhere"; drop table users; --')).rejects.toMatchObject({ status: 500 })
  })
})

inFolder('the receiver of the guide accepts our signatures only', async ({ folder }) => {
  const guide = readFileSync(join(import.meta.dirname, '../../../docs/auth-hooks.md'), 'utf8')
  const file = join(folder, 'receiver.mjs')
  writeFileSync(file, /```js\n([\s\S]*?)```/.exec(guide)?.[1] ?? '')
  const HOOK_SECRET_TEXT = `v1,whsec_${HOOK_SECRET.toString('base64')}`
  const child = spawn(process.execPath, [file], {
    env: { ...process.env, PORT: '0', HOOK_SECRET: HOOK_SECRET_TEXT },
  })
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  const url = `http://127.0.0.1:${/\d+/.exec(line.toString())?.[0]}/`
  const ask = (secret: Buffer) =>
    hooksOf({ customAccessToken: { kind: 'http', url, secrets: [OLD_SECRET, secret] } }).invoke(
      'customAccessToken',
      { claims: { sub: 'u' } },
    )
  expect(await ask(HOOK_SECRET)).toEqual({ claims: { sub: 'u', plan: 'gold' } })
  const refused = { message: 'Hook requires authorization token' }
  await expect(ask(OLD_SECRET)).rejects.toMatchObject(refused)
  child.kill()
  await once(child, 'exit')
})

describe('the settings of a hook', () => {
  const REQUIRED = {
    AUTH_SITE_URL: 'http://localhost:3000',
    AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
    AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
  }
  const read = (uri: string, more: Record<string, string> = {}) =>
    readConfig({
      ...REQUIRED,
      AUTH_HOOK_SEND_SMS_ENABLED: 'true',
      AUTH_HOOK_SEND_SMS_URI: uri,
      ...more,
    }).hooks
  const SECRET = `v1,whsec_${HOOK_SECRET.toString('base64')}`

  it.each([
    ['https://hooks.example.com/sms', {}],
    ['http://localhost:8080/sms', {}],
    ['http://[::1]:8080/sms', {}],
    ['http://receiver:8080/sms', { MILLRACE_AUTH_HOOK_ALLOWED_HOSTS: 'other, receiver:8080' }],
    ['https://receiver/sms', { MILLRACE_AUTH_HOOK_ALLOWED_HOSTS: 'receiver' }],
  ])('may be %s', (uri, more) => {
    const secrets = { AUTH_HOOK_SEND_SMS_SECRETS: `${SECRET}|${SECRET}` }
    expect(read(uri, { ...more, ...secrets })).toEqual({
      sendSms: { kind: 'http', url: uri, secrets: [HOOK_SECRET, HOOK_SECRET] },
    })
  })

  it('may be a function of the database', () => {
    expect(read('pg-functions://postgres/public/send_sms')).toEqual({
      sendSms: { kind: 'pgFunction', schema: 'public', name: 'send_sms' },
    })
  })

  it.each([
    ['', {}, 'needs AUTH_HOOK_SEND_SMS_URI'],
    ['ftp://example.com/', {}, 'must begin with'],
    ['not a URL', {}, 'must begin with'],
    ['http://hooks.example.com/', {}, 'must use https'],
    ['https://evil.test/', { MILLRACE_AUTH_HOOK_ALLOWED_HOSTS: 'good.test' }, 'is not in'],
    ['pg-functions://postgres/public', {}, 'must look like pg-functions'],
    ['pg-functions://postgres/public/a";drop', {}, 'must look like pg-functions'],
    ['https://example.com/', { AUTH_HOOK_SEND_SMS_SECRETS: 'plain' }, 'must look like v1,whsec_'],
    [
      'https://example.com/',
      { AUTH_HOOK_SEND_SMS_SECRETS: 'v1a,whpk_x:whsk_x' },
      'must look like v1,whsec_',
    ],
  ])('cannot be %s', (uri, more, problem) => {
    expect(() => read(uri, more)).toThrow(problem)
  })
})
