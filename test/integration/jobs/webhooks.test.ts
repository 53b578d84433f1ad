import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import OpenAI from 'openai'
import { Pool } from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

interface Received {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

let tiers: Tiers
let client: OpenAI
let receiver: Server
let base: string
let pool: Pool
const received: Received[] = []
/** The status that a path answers; a path without one hangs. */
const answers = new Map<string, number>()
let close: (() => unknown)[] = []

beforeAll(async () => {
  receiver = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const path = request.url ?? ''
    received.push({ path, headers: request.headers, body: Buffer.concat(chunks).toString() })
    const status = answers.get(path)
    if (status !== undefined) response.writeHead(status, { location: `${base}/moved` }).end()
  })
  receiver.listen(0, '127.0.0.1')
  await once(receiver, 'listening')
  base = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`
  const made = await createDatabase()
  pool = new Pool({ connectionString: made.url, max: 1 })
  const folder = await mkdtemp(join(tmpdir(), 'millrace-webhooks-'))
  tiers = await startTiers({
    databaseUrl: made.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: freshPrefix(),
    env: {
      MILLRACE_WORKER_MODELS: 'tiny-chat',
      MILLRACE_WEBHOOKS_ALLOW_PRIVATE: 'true',
      AUTH_MAILER_AUTOCONFIRM: 'true',
    },
  })
  close = [
    () => receiver.closeAllConnections(),
    () => receiver.close(),
    () => tiers.stop(),
    () => pool.end(),
    made.drop,
    () => rm(folder, { recursive: true, force: true }),
  ]
  await tiers.startWorker()
  client = new OpenAI({ baseURL: `${tiers.url}/v1`, apiKey: tiers.apiKey, maxRetries: 0 })
}, 90_000)

afterAll(async () => {
  for (const step of close) await step()
})

interface Endpoint {
  readonly id: string
  readonly secret: string
}

async function call<T>(
  method: string,
  path: string,
  body?: object,
  token = tiers.apiKey,
): Promise<T> {
  const answer = await fetch(`${tiers.url}/v1/webhook_endpoints${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  return (await answer.json()) as T
}

const endpoint = (path: string, status: number | undefined, events?: readonly string[]) => {
  if (status !== undefined) answers.set(path, status)
  return call<Endpoint>('POST', '', { url: `${base}${path}`, ...(events && { events }) })
}
const at = (path: string) => received.filter((one) => one.path === path)
const deliveries = async ({ id }: Endpoint) =>
  (
    await call<{ data: { id: string; status: string; last_status: number | null }[] }>(
      'GET',
      `/${id}/deliveries`,
    )
  ).data

const signed = (headers: IncomingHttpHeaders): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]))

describe('a webhook', () => {
  it('reports the end of a background response, and the official client verifies it', async () => {
    const made = await endpoint('/verified', 200, ['response.completed'])
    const { id } = await client.responses.create({
      model: 'tiny-chat',
      input: 'What is the plural of box?',
      background: true,
    })
    await expect.poll(() => at('/verified').length).toBe(1)
    const [{ body, headers } = { body: '', headers: {} }] = at('/verified')
    const event = await client.webhooks.unwrap(body, signed(headers), made.secret)
    expect(event).toMatchObject({ type: 'response.completed', object: 'event', data: { id } })
    expect(signed(headers)['webhook-id']).toBe(event.id)
    await expect.poll(() => deliveries(made)).toMatchObject([{ status: 'delivered' }])
    await expect(client.webhooks.unwrap(`${body} `, signed(headers), made.secret)).rejects.toThrow()
  })

  it('is signed with both secrets after a rotation', async () => {
    const made = await endpoint('/rotated', 200, ['webhook.test'])
    const { secret } = await call<Endpoint>('POST', `/${made.id}/rotate`)
    expect(secret).not.toBe(made.secret)
    await call('POST', `/${made.id}/test`)
    await expect.poll(() => at('/rotated').length).toBe(1)
    const [{ body, headers } = { body: '', headers: {} }] = at('/rotated')
    for (const one of [secret, made.secret]) {
      const event = await client.webhooks.unwrap(body, signed(headers), one)
      expect(event.type).toBe('webhook.test')
    }
  })

  it('is tried again after a failure, follows no redirect, and can be delivered again', async () => {
    const made = await endpoint('/broken', 500, ['webhook.test'])
    const { id } = await call<{ id: string }>('POST', `/${made.id}/test`)
    await expect.poll(() => deliveries(made)).toMatchObject([{ last_status: 500 }])
    answers.set('/broken', 302)
    await call('POST', `/${made.id}/deliveries/${id}/redeliver`)
    await expect.poll(() => deliveries(made)).toMatchObject([{ last_status: 302 }])
    expect(at('/moved')).toEqual([])
    answers.set('/broken', 204)
    await call('POST', `/${made.id}/deliveries/${id}/redeliver`)
    await expect.poll(() => deliveries(made)).toMatchObject([{ id, status: 'delivered' }])
    // Receivers recognize an event that comes again by its id.
    expect(new Set(at('/broken').map(({ headers }) => headers['webhook-id'])).size).toBe(1)
  })

  it('to a receiver that does not answer delays no other', async () => {
    const hanging = await endpoint('/hanging', undefined, ['webhook.test'])
    const live = await endpoint('/live', 200, ['webhook.test'])
    for (let n = 0; n < 20; n += 1) await call('POST', `/${hanging.id}/test`)
    await expect.poll(() => at('/hanging').length).toBeGreaterThan(0)
    await call('POST', `/${live.id}/test`)
    await expect.poll(() => deliveries(live)).toMatchObject([{ status: 'delivered' }])
    expect(at('/hanging').length).toBeLessThan(16)
  })

  it('is not sent to an endpoint that is disabled or deleted', async () => {
    const made = await endpoint('/off', 200, ['webhook.test'])
    await call('PATCH', `/${made.id}`, { disabled: true })
    expect(await call('PATCH', `/${made.id}`, {})).toMatchObject({
      id: made.id,
      disabled_reason: 'request',
    })
    await call('POST', `/${made.id}/test`)
    const marker = await endpoint('/marker', 200, ['webhook.test'])
    await call('POST', `/${marker.id}/test`)
    await expect.poll(() => at('/marker').length).toBe(1)
    expect(at('/off')).toEqual([])
    await call('PATCH', `/${made.id}`, { disabled: false })
    await expect.poll(() => at('/off').length).toBe(1)
    await call('DELETE', `/${made.id}`)
    const { error } = await call<{ error: { param: string } }>('GET', `/${made.id}`)
    expect(error.param).toBe('endpoint_id')
  })

  it('reports the sign-ins and sign-outs of the user to their own organization', async () => {
    const post = async (path: string, body: object, token = '') => {
      const answer = await fetch(`${tiers.url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
        body: JSON.stringify(body),
      })
      return (await answer.json().catch(() => ({}))) as {
        readonly access_token: string
        readonly user: { readonly id: string }
      }
    }
    const credentials = { email: 'ada@example.test', password: 'a long password of a test' }
    const { access_token: token, user } = await post('/signup', credentials)
    answers.set('/users', 200)
    const body = { url: `${base}/users`, events: ['user.signed_in', 'user.signed_out'] }
    await call('POST', '', body, token)
    await post('/token?grant_type=password', credentials)
    await expect.poll(() => at('/users').length).toBe(1)
    await post('/logout', {}, token)
    await expect.poll(() => at('/users').length).toBe(2)
    const events = at('/users').map((one) => JSON.parse(one.body))
    expect(events.map(({ type, data }) => [type, data.id])).toEqual([
      ['user.signed_in', user.id],
      ['user.signed_out', user.id],
    ])
    expect(events.map(({ id }) => id)).toEqual(events.map(({ id }) => id).toSorted())
  })

  it('is disabled at an endpoint that failed for a day, and the others receive a notice', async () => {
    const failing = await endpoint('/failing', 500, ['webhook.test'])
    await endpoint('/notices', 200, ['webhook.disabled'])
    await pool.query(
      "update webhook_endpoints set failing_since = now() - interval '25 hours' where id = $1",
      [failing.id],
    )
    await expect.poll(() => at('/notices').length).toBe(1)
    expect(JSON.parse(at('/notices')[0]?.body ?? '')).toMatchObject({
      type: 'webhook.disabled',
      data: { id: failing.id },
    })
    expect(await call('GET', `/${failing.id}`)).toMatchObject({
      disabled_reason: 'every delivery failed for 24 hours',
    })
  })

  it.each(['ftp://example.test/', 'https://user:pass@example.test/', 'x', ''])(
    'is not sent to %s',
    async (url) => {
      const answer = await call<{ error: { param: string } }>('POST', '', { url })
      expect(answer.error.param).toBe('url')
    },
  )
})
