import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { ServedRoute } from '#test/support/api-here.ts'

import {
  call,
  closeIsolation,
  creatorOf,
  type Described,
  newScene,
  newToken,
  openIsolation,
  PARTS,
  partOf,
  request,
  type Scene,
  upload,
} from './isolation-scenes.ts'

const MALFORMED = ['x', '..%2f..', '%00', "'%20or%201=1--", 'a'.repeat(300), '%F0%9F%92%A5']

let url: string
let document: Described
let own: Scene
let other: Scene
let routes: readonly ServedRoute[]

beforeAll(async () => {
  const opened = await openIsolation()
  ;({ url, document, routes } = opened)
  ;[own, other] = [await newScene('org-own'), await newScene('org-other')]
}, 90_000)
afterAll(closeIsolation)

describe('the limits, the usage and the keys of requests', () => {
  it('are in force in a whole process', async () => {
    const listed = await fetch(`${url}/v1/usage`, {
      headers: { authorization: `Bearer ${own.secret}` },
    })
    expect(listed.status).toBe(200)
    expect(listed.headers.get('x-ratelimit-limit-requests')).toBe('600000')
    const send = () =>
      fetch(`${url}/v1/activities`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${own.secret}`,
          'content-type': 'application/json',
          'idempotency-key': 'once',
        },
        body: JSON.stringify({ type: 'Like', object: 'doc:2' }),
      })
    const [first, again] = [await send(), await send()]
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(await again.text()).toBe(await first.text())
  })
})

describe('every route that takes an id', () => {
  it('is known to this test', () => {
    expect(routes.length).toBeGreaterThan(10)
    for (const { path } of routes) {
      expect(creatorOf(path)).toBeTypeOf('function')
      const part = partOf(path)
      if (part !== undefined) expect([path, PARTS[part]]).toEqual([path, expect.any(Function)])
    }
  })

  // A job that no worker ran has no result.
  let found: typeof routes = []
  beforeAll(() => {
    found = routes.filter(({ method, path }) => method === 'GET' && !path.endsWith('/result'))
  })

  it("answers 404 for another organization's, and does not change it", async () => {
    // A caller that is not a user is refused before anything is looked up.
    for (const route of routes.filter(({ path }) => !path.startsWith('/v1/invitations'))) {
      const id = await creatorOf(route.path)(other)
      expect([route, id === '' || id === undefined]).toEqual([route, false])
      const { status } = await call(own.secret, route, encodeURIComponent(id))
      expect([route, status]).toEqual([route, 404])
      const get = found.find(({ path }) => path === route.path)
      if (get === undefined) continue
      const part = await PARTS[partOf(route.path) ?? '']?.(other, id)
      const kept = await call(other.secret, get, encodeURIComponent(id), part)
      expect([route, kept.status]).toEqual([route, 200])
    }
  })

  it('finds its own', async () => {
    for (const route of found) {
      const id = await creatorOf(route.path)(own)
      const part = await PARTS[partOf(route.path) ?? '']?.(own, id)
      const { status } = await call(own.secret, route, encodeURIComponent(id), part)
      expect([route, status]).toEqual([route, 200])
    }
  })

  it("finds no part of another organization's thing, under either id", async () => {
    for (const route of routes) {
      const create = PARTS[partOf(route.path) ?? '']
      if (create === undefined) continue
      const [mine, theirs] = [await creatorOf(route.path)(own), await creatorOf(route.path)(other)]
      const part = await create(other, theirs)
      for (const id of [mine, theirs]) {
        const { status } = await call(own.secret, route, id, part)
        expect([route, id, status]).toEqual([route, id, 404])
      }
      const get = routes.find(({ method, path }) => method === 'GET' && path === route.path)
      if (get === undefined) continue
      const kept = await call(other.secret, get, theirs, part)
      expect([route, kept.status]).toEqual([route, 200])
    }
  })

  it.each(MALFORMED)('refuses %s in the second place too', async (part) => {
    for (const route of routes.filter(({ path }) => partOf(path) !== undefined)) {
      const { status } = await call(own.secret, route, own.organizationId, part)
      expect([route, status]).toEqual([route, expect.toSatisfy(isClientError)])
    }
  })

  it('answers 404 for a deleted one', async () => {
    const deletions = routes.filter(
      ({ method, path }) => method === 'DELETE' && path.split('{').length === 2,
    )
    for (const deletion of deletions.filter(({ path }) => !path.includes('organizations'))) {
      const family = routes.filter(({ path }) => path.startsWith(deletion.path))
      for (const route of family) {
        const id = await creatorOf(route.path)(own)
        expect((await call(own.secret, deletion, id)).status).toBe(200)
        const { status } = await call(own.secret, route, id)
        expect([route, status]).toEqual([route, 404])
      }
    }
  })

  it.each(MALFORMED)('refuses %s as an error of the client', async (id) => {
    for (const route of routes.filter(({ path }) => !path.startsWith('/v1/invitations'))) {
      const { status, text } = await call(own.secret, route, id)
      expect([route, status]).toEqual([route, expect.toSatisfy(isClientError)])
      expect(JSON.parse(text)).toHaveProperty('error.message')
    }
  })
})

const isClientError = (status: number): boolean => [400, 404, 414].includes(status)
const isRefused = expect.toSatisfy(isClientError)

describe('a user of another organization', () => {
  it.each([
    ['with an address', 'user@example.test'],
    ['without one', undefined],
  ])('%s finds nothing under any id', async (_title, email) => {
    const token = await newToken(email)
    for (const route of routes) {
      const id = await creatorOf(route.path)(other)
      const part = await PARTS[partOf(route.path) ?? '']?.(other, id)
      const { status } = await call(token, route, encodeURIComponent(id), part)
      // Anonymous users create nothing that lasts: they are refused before the id is read.
      const isUnnamed = email === undefined && status === 403
      expect([route, isUnnamed ? 404 : status]).toEqual([route, 404])
      const get = routes.find(({ method, path }) => method === 'GET' && path === route.path)
      if (get === undefined || /invitations|\/result$/.test(get.path)) continue
      const kept = await call(other.secret, get, encodeURIComponent(id), part)
      expect([route, kept.status]).toEqual([route, 200])
    }
  })
})

describe('a webhook endpoint', () => {
  it('reaches nothing of the private network, however its address is written', async () => {
    let calls = 0
    // The other tests use up most of what an organization may have.
    const { secret } = await newScene('org-webhooks')
    const receiver = createServer((_request, response) => {
      calls += 1
      response.end()
    })
    receiver.listen(0, '127.0.0.1')
    await once(receiver, 'listening')
    const { port } = receiver.address() as AddressInfo
    const create = (host: string) =>
      request(secret, 'POST', '/v1/webhook_endpoints', { url: `http://${host}:${port}/` })
    const literals = ['127.0.0.1', '2130706433', '0x7f.1', '[::ffff:127.0.0.1]', '169.254.169.254']
    for (const host of literals) {
      const { status, text } = await create(host)
      expect([host, status, JSON.parse(text).error?.param]).toEqual([host, 400, 'url'])
    }
    const path = `/v1/webhook_endpoints/${(await create('localhost')).id}`
    await request(secret, 'POST', `${path}/test`)
    const deliveries = async () =>
      JSON.parse((await request(secret, 'GET', `${path}/deliveries`)).text).data
    const last_error = 'localhost has no public address'
    await expect.poll(deliveries).toMatchObject([{ last_error, last_status: null }])
    expect(calls).toBe(0)
    receiver.close()
  })
})

const tuneWith = (id: string) => ({ model: 'tiny-chat', training_file: id, validation_file: id })
/** Fields that name a thing: what they name, and the body of a request that does. */
const REFERENCES: Readonly<Record<string, (id: string) => object>> = {
  'POST /v1/responses previous_response_id': (id) => ({
    model: 'tiny-chat',
    input: 'x',
    previous_response_id: id,
  }),
  'POST /v1/responses/compact previous_response_id': (id) => ({
    model: 'tiny-chat',
    input: 'x',
    previous_response_id: id,
  }),
  'POST /v1/responses/input_tokens previous_response_id': (id) => ({
    model: 'tiny-chat',
    previous_response_id: id,
  }),
  'POST /v1/responses/input_tokens conversation': (id) => ({
    model: 'tiny-chat',
    conversation: id,
  }),
  'POST /v1/responses conversation': (id) => ({ model: 'tiny-chat', input: 'x', conversation: id }),
  'POST /v1/batches input_file_id': (id) => ({
    input_file_id: id,
    endpoint: '/v1/embeddings',
    completion_window: '24h',
  }),
  'POST /v1/fine_tuning/jobs training_file': tuneWith,
  'POST /v1/fine_tuning/jobs validation_file': tuneWith,
  'POST /v1/fine-tunes training_file': tuneWith,
  'POST /v1/fine-tunes validation_file': tuneWith,
  'POST /v1/engines/{engine_id}/search file': (id) => ({ query: 'x', file: id }),
}
const MADE_BY: Readonly<Record<string, (scene: Scene) => Promise<string>>> = {
  previous_response_id: creatorOf('/v1/responses'),
  conversation: creatorOf('/v1/conversations'),
  input_file_id: (scene) => upload(scene),
  file: (scene) => upload(scene),
  training_file: (scene) => upload(scene),
  validation_file: (scene) => upload(scene),
  api_key_id: creatorOf('/v1/api_keys'),
}
/** Fields that look so and name nothing that an organization owns, each with the reason. */
const NO_REFERENCES: readonly (readonly [RegExp, string])[] = [
  [/ (stop|allowed|return|return_tokens_as)_token_ids$/, 'tokens of the model'],
  [/ prompt_cache_key$/, 'a label within the organization'],
  [/ request_id$/, 'a name that is ignored'],
  [/ starting_after$/, 'a number'],
  [/ part_ids$/, 'parts of the upload in the path'],
  [/ (output_)?expires_after$/, 'a time'],
  [/audio\/\w+ file$/, 'the recording itself'],
  [/^POST \/v1\/files file$/, 'the file itself'],
  [/^GET \/v1\/usage after$/, 'the cursor of a page, which holds no id'],
  [/invitations user_id$/, 'users belong to no organization'],
]
const ID_FIELD = /(^|_)(ids?|file|files|cursor|after|before|conversation|previous|key)$/

describe('every field and parameter that names a thing', () => {
  const listed = () =>
    Object.entries(document.paths)
      .filter(([path]) => path.startsWith('/v1/'))
      .flatMap(([path, methods]) =>
        Object.entries(methods).flatMap(([method, { parameters = [], requestBody }]) => {
          const bodies = Object.values(requestBody?.content ?? {})
          const queries = parameters.filter((parameter) => parameter.in === 'query')
          const names = [
            ...queries.map(({ name }) => name),
            ...bodies.flatMap(({ schema }) => Object.keys(schema?.properties ?? {})),
          ]
          return [...new Set(names)]
            .filter((name) => ID_FIELD.test(name))
            .map((name) => ({ method: method.toUpperCase(), path, name }))
        }),
      )
      .map((one) => ({ ...one, key: `${one.method} ${one.path} ${one.name}` }))
      .filter(({ key }) => !NO_REFERENCES.some(([pattern]) => pattern.test(key)))

  it("answers another organization's id as one that nothing has", async () => {
    const references = listed()
    expect(references.length).toBeGreaterThan(12)
    for (const { method, path, name, key } of references) {
      const body = REFERENCES[key]
      expect([key, method === 'GET' || body !== undefined]).toEqual([key, true])
      const whole = path.includes('{') && method === 'GET'
      const mine = whole ? await creatorOf(path)(own) : 'tiny-chat'
      const theirs = await (MADE_BY[name] ?? theirsOf(path))(other)
      const answerTo = async (id: string) => {
        const target = path.replace(/\{[^}]+\}/, () => encodeURIComponent(mine))
        const query = method === 'GET' ? `?${name}=${encodeURIComponent(id)}` : ''
        const { status, text } = await request(own.secret, method, `${target}${query}`, body?.(id))
        return { key, status, text: text.replaceAll(id, 'ID') }
      }
      const answer = await answerTo(theirs)
      expect(answer).toEqual(await answerTo(nextId(theirs)))
      // No worker runs here: a request that found something would wait for one.
      if (method !== 'GET') expect([key, answer.status]).toEqual([key, isRefused])
    }
  })

  it('is different for each organization: Idempotency-Key', async () => {
    const send = ({ secret }: Scene, object: string) =>
      request(
        secret,
        'POST',
        '/v1/activities',
        { type: 'Like', object },
        { 'idempotency-key': 'one' },
      )
    const [first, second] = [await send(other, 'doc:theirs'), await send(own, 'doc:mine')]
    expect([first.status, second.status]).toEqual([201, 201])
    expect(second.id).not.toBe(first.id)
  })
})

/** A cursor names one of the things that are listed. */
function theirsOf(path: string): (scene: Scene) => Promise<string> {
  const [, part] = /\{[^}]+\}\/(\w+)$/.exec(path) ?? []
  const made = part === undefined ? undefined : PARTS[PART_BY_LIST[part] ?? '']
  const create = creatorOf(path)
  return made === undefined ? create : async (scene) => made(scene, await create(scene))
}

const PART_BY_LIST: Readonly<Record<string, string>> = {
  items: 'item_id',
  deliveries: 'delivery_id',
  invitations: 'invitation_id',
}

/** An id of the same form that nothing has. */
const nextId = (id: string): string =>
  id.slice(0, -8) + id.slice(-8).replaceAll(/./g, (one) => (one === '0' ? '1' : '0'))
