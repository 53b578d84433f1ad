import { randomUUID } from 'node:crypto'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { type MailCatcher, startMailCatcher } from '#test/support/mail-catcher.ts'
import { type OtlpReceiver, startOtlpReceiver } from '#test/support/otlp-receiver.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

import { Canaries } from './canaries.ts'

const SECRETS_MIN = 50
const REDIRECT = 'http://localhost:3000/back'

describe('the telemetry of a process', () => {
  const canaries = new Canaries()
  const { plant } = { plant: (name: string) => canaries.plant(name) }
  const jwtSecret = `${plant('signing secret')}-that-is-long-enough`
  const adminToken = plant('admin token')
  const pages: string[] = []
  let database: Awaited<ReturnType<typeof createDatabase>>
  let folder: string
  let mail: MailCatcher
  let receiver: OtlpReceiver
  let tiers: Tiers
  let worker: Awaited<ReturnType<Tiers['startWorker']>>

  beforeAll(async () => {
    database = await createDatabase()
    folder = await mkdtemp(join(tmpdir(), 'millrace-canaries-'))
    mail = await startMailCatcher()
    receiver = await startOtlpReceiver()
    tiers = await startTiers({
      databaseUrl: database.url,
      redisUrl: inject('redisUrl'),
      keyPrefix: freshPrefix(),
      folder,
      env: {
        LOG_LEVEL: 'debug',
        AUTH_TRACING_ENABLED: 'true',
        OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
        OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
        OTEL_EXPORTER_OTLP_HEADERS: `x-key=${plant('collector key')}`,
        OTEL_BSP_SCHEDULE_DELAY: '50',
        DEBUG: 'true',
        AUTH_JWT_SECRET: jwtSecret,
        AUTH_SMTP_HOST: mail.host,
        AUTH_SMTP_PORT: String(mail.port),
        AUTH_EXTERNAL_GITHUB_ENABLED: 'true',
        AUTH_EXTERNAL_GITHUB_CLIENT_ID: 'a-client',
        AUTH_EXTERNAL_GITHUB_SECRET: plant('client secret'),
        AUTH_EXTERNAL_GITHUB_REDIRECT_URI: 'http://localhost/callback',
        AUTH_URI_ALLOW_LIST: REDIRECT,
        AUTH_RATE_LIMIT_EMAIL_SENT: '1000',
        AUTH_SMTP_MAX_FREQUENCY: '0',
        MILLRACE_URL_SIGNING_SECRET: plant('URL signing secret'),
        MILLRACE_ADMIN_TOKEN: adminToken,
        MILLRACE_WORKER_MODELS: 'tiny-chat',
      },
    })
    canaries.know('API key', tiers.apiKey)
    worker = await tiers.startWorker()
  })

  afterAll(async () => {
    await tiers?.stop()
    await Promise.all([receiver?.stop(), mail?.stop()])
    await database?.drop()
    await rm(folder, { recursive: true, force: true })
  })

  const call = async (
    path: string,
    body?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<{ status: number; text: string; json: Record<string, unknown> }> => {
    const answer = await fetch(`${tiers.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      redirect: 'manual',
      headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
    const text = (await answer.text()) || (answer.headers.get('location') ?? '')
    return { status: answer.status, text, json: text.startsWith('{') ? JSON.parse(text) : {} }
  }
  const ask = (path: string, body?: unknown) =>
    call(path, body, { authorization: `Bearer ${tiers.apiKey}` })
  const linkOf = async (address: string): Promise<URL> => {
    const { text = '' } = await mail.waitFor(address)
    const link = new URL(/https?:\/\/\S+verify\S+/.exec(text)?.[0] ?? '')
    return link
  }

  it('contains no password, token or link of a user', async () => {
    const email = `${plant('address')}@example.test`
    const password = plant('password')
    const data = { note: plant('user data') }
    expect((await call('/signup', { email, password, data })).status).toBe(200)
    const confirmation = await linkOf(email)
    canaries.know('confirmation token', confirmation.searchParams.get('token') ?? '')
    const confirmed = await call(`${confirmation.pathname}${confirmation.search}`)
    expect(confirmed.status).toBe(303)
    const tokens = new URLSearchParams(confirmed.text.split('#')[1])
    canaries.know('access token of a link', tokens.get('access_token') ?? '')
    canaries.know('refresh token of a link', tokens.get('refresh_token') ?? '')
    await call('/token?grant_type=password', { email, password: plant('wrong password') })
    const { json } = await call('/token?grant_type=password', { email, password })
    const accessToken = canaries.know('access token', String(json.access_token))
    const refreshToken = canaries.know('refresh token', String(json.refresh_token))
    const renewed = await call('/token?grant_type=refresh_token', { refresh_token: refreshToken })
    canaries.know('renewed refresh token', String(renewed.json.refresh_token))
    await call('/token?grant_type=refresh_token', { refresh_token: plant('unknown refresh token') })
    const bearer = { authorization: `Bearer ${accessToken}` }
    await call('/user', undefined, bearer)
    await fetch(`${tiers.url}/user`, {
      method: 'PUT',
      headers: { ...bearer, 'content-type': 'application/json' },
      body: JSON.stringify({ password: plant('new password'), data: { x: plant('new data') } }),
    })
    const factor = await call(
      '/factors',
      { factor_type: 'totp', friendly_name: plant('factor') },
      bearer,
    )
    canaries.know('TOTP secret', String((factor.json.totp as { secret: string }).secret))
    await call('/recover', { email })
    const recovery = await linkOf(email)
    canaries.know('recovery token', recovery.searchParams.get('token') ?? '')
    await call(`${recovery.pathname}${recovery.search}`)
    const magic = `${plant('second address')}@example.test`
    const challenge = {
      code_challenge: plant('challenge').padEnd(43, 'x'),
      code_challenge_method: 's256',
    }
    await call('/magiclink', { email: magic, ...challenge })
    canaries.know('magic token', (await linkOf(magic)).searchParams.get('token') ?? '')
    await call(`/verify?type=signup&token=${plant('unknown link token')}&redirect_to=${REDIRECT}`)
    await call(`/authorize?provider=github&redirect_to=${REDIRECT}?s=${plant('redirect')}`)
    await call(`/callback?code=${plant('provider code')}&state=${plant('provider state')}`)
    await call('/user', undefined, { authorization: `Bearer ${plant('unknown bearer')}` })
    await call('/user', undefined, {
      apikey: plant('apikey header'),
      cookie: `s=${plant('cookie')}`,
    })
    await call('/signup', `{"email":"a@b.c","password":"${plant('password in broken JSON')}`)
    await call('/signup', { email: plant('address that is none'), password: plant('its password') })
    await call('/otp', { phone: plant('number that is none') })
  })

  it('contains no prompt, answer or key of inference', async () => {
    const chat = { model: 'tiny-chat', max_tokens: 6 }
    const tool = { name: 'find', parameters: { type: 'object', title: plant('tool schema') } }
    const answer = await ask('/v1/chat/completions', {
      ...chat,
      messages: [
        { role: 'system', content: plant('system prompt') },
        { role: 'user', content: plant('user prompt') },
      ],
      stop: [plant('stop string')],
      user: plant('user field'),
      tools: [{ type: 'function', function: tool }],
      tool_choice: 'none',
    })
    expect(answer.status).toBe(200)
    await ask('/v1/chat/completions', {
      ...chat,
      stream: true,
      messages: [{ role: 'user', content: plant('streamed prompt') }],
    })
    await ask('/v1/completions', { ...chat, prompt: plant('completion prompt'), echo: true })
    await ask('/v1/edits', { model: 'tiny-chat', input: plant('edit'), instruction: plant('how') })
    await ask('/v1/engines/tiny-chat/search', {
      query: plant('search query'),
      documents: [plant('search document')],
    })
    // Refused in many ways, each of which quotes or could quote what was sent.
    await ask('/v1/chat/completions', { ...chat, messages: plant('messages that are none') })
    await ask('/v1/completions', {
      model: plant('model that is none'),
      prompt: plant('its prompt'),
    })
    await ask('/v1/completions', { ...chat, prompt: plant('prompt'), temperature: plant('number') })
    await ask('/v1/completions', `{"prompt":"${plant('prompt in broken JSON')}`)
    await ask('/v1/completions', { ...chat, prompt: `${plant('too long')} `.repeat(2000) })
    await call('/v1/models', undefined, { authorization: `Bearer mr-${plant('unknown key')}` })
    await ask(`/v1/files?after=${plant('cursor')}`)
    await ask(`/no/such/${plant('path')}?key=${plant('query')}`)
    const created = await ask('/v1/api_keys', { name: 'another' })
    if (typeof created.json.secret === 'string') canaries.know('created key', created.json.secret)
  })

  it('contains no content of a file, a batch or an activity', async () => {
    const form = new FormData()
    form.set('purpose', 'search')
    const line = JSON.stringify({ text: plant('file content'), metadata: plant('file metadata') })
    form.set('file', new Blob([`${line}\n`]), `${plant('file name')}.jsonl`)
    const upload = await fetch(`${tiers.url}/v1/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${tiers.apiKey}` },
      body: form,
    })
    expect(upload.status).toBe(200)
    const broken = new FormData()
    broken.set('purpose', 'search')
    broken.set('file', new Blob([`{"text":"${plant('broken file')}`]), 'broken.jsonl')
    await fetch(`${tiers.url}/v1/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${tiers.apiKey}` },
      body: broken,
    })
    await ask('/v1/activities', {
      type: 'Create',
      actor: 'https://example.test/actor',
      id: randomUUID(),
      object: { type: 'Note', content: plant('activity') },
    })
  })

  it('contains no content of a waiting job, and neither does the dashboard', async () => {
    const abort = new AbortController()
    const waiting = fetch(`${tiers.url}/v1/embeddings`, {
      method: 'POST',
      headers: { authorization: `Bearer ${tiers.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'tiny-embed', input: plant('waiting input') }),
      signal: abort.signal,
    }).catch(() => undefined)
    const admin = { authorization: `Bearer ${adminToken}` }
    const list = '/admin/queues/api/queues?activeQueue=embedding.tiny-embed&status=latest&page=1'
    const shown = async () => (await call(list, undefined, admin)).text
    await expect.poll(shown).toContain('[redacted]')
    const id = /"id":"(job_[^"]+)"/.exec(await shown())?.[1] ?? ''
    const job = await call(`/admin/queues/api/queues/embedding.tiny-embed/${id}`, undefined, admin)
    expect(job.status).toBe(200)
    for (const path of ['/admin/queues/', '/admin'])
      pages.push((await call(path, undefined, admin)).text)
    pages.push(await shown(), job.text)
    abort.abort()
    await waiting
  })

  it('was searched for all planted secrets, and contains none', async () => {
    expect(canaries.size).toBeGreaterThanOrEqual(SECRETS_MIN)
    // Telemetry and log lines on their way arrive with the end of the processes.
    const metrics = await Promise.all(
      [tiers.metricsUrl, worker.metricsUrl].map(async (url) => (await fetch(url)).text()),
    )
    await tiers.stop()
    const logs = await Promise.all(
      ['api.log', 'worker.log'].map((name) => readFile(join(folder, name), 'utf8')),
    )
    const traces = receiver.bodies.map(({ body }) => body.toString('utf8')).join('\n')
    expect(logs[0]?.split('\n').length).toBeGreaterThan(SECRETS_MIN)
    expect(receiver.spans.length).toBeGreaterThan(SECRETS_MIN)
    expect(canaries.foundIn(logs.join('\n'))).toEqual([])
    expect(canaries.foundIn(traces)).toEqual([])
    expect(canaries.foundIn(metrics.join('\n'))).toEqual([])
    expect(canaries.foundIn(pages.join('\n'))).toEqual([])
  })

  it('would have revealed them: the search decodes the encodings of logs', () => {
    const own = new Canaries()
    const secret = own.plant('secret')
    const disguises = [
      secret,
      `a"${secret}"`,
      Buffer.from(secret).toString('base64'),
      Buffer.from(`x${secret}`).toString('base64'),
      Buffer.from(`xy${secret}`).toString('base64'),
      Buffer.from(secret).toString('hex'),
    ]
    for (const text of disguises) expect(own.foundIn(text), text).toEqual(['secret'])
    expect(own.foundIn('nothing of it')).toEqual([])
  })
})
