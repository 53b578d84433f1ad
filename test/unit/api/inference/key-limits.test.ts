import { afterAll, beforeAll, expect, it } from 'vitest'

import { API_KEY, openSurface } from './surface.ts'

let surface: Awaited<ReturnType<typeof openSurface>>
beforeAll(async () => {
  surface = await openSurface()
})
afterAll(() => surface.app.close())

const patch = (id: string, payload: object, secret = API_KEY) =>
  surface.app.inject({
    method: 'PATCH',
    url: `/v1/api_keys/${id}`,
    headers: { authorization: `Bearer ${secret}` },
    payload,
  })
const NONE = { requests_per_minute: null, tokens_per_minute: null, concurrent_requests: null }

it('gives a key the requested limits, and changes the given ones', async () => {
  const asked = { requests_per_minute: 60, tokens_per_minute: 1000 }
  const created = (await surface.post('/v1/api_keys', { name: 'a', ...asked })).json()
  expect(created).toMatchObject({ ...NONE, ...asked })
  const change = { tokens_per_minute: null, concurrent_requests: 2 }
  const changed = await patch(created.id, change)
  expect([changed.statusCode, changed.json()]).toEqual([
    200,
    expect.objectContaining({ id: created.id, ...asked, ...change }),
  ])
  expect(changed.json()).not.toHaveProperty('secret')
})

it.each([
  [{ requests_per_minute: 0 }, 'requests_per_minute'],
  [{ tokens_per_minute: 'many' }, 'tokens_per_minute'],
  [{ concurrent_request: 1 }, 'concurrent_request'],
])('refuses the limits %j', async (limits, param) => {
  const { id } = (await surface.post('/v1/api_keys', { name: 'a' })).json()
  for (const response of [
    await surface.post('/v1/api_keys', { name: 'a', ...limits }),
    await patch(id, limits),
  ]) {
    expect([response.statusCode, response.json().error.param]).toEqual([400, param])
  }
})

it('refuses changes of keys that do not exist, and changes of nothing', async () => {
  const absent = await patch('key_none', { requests_per_minute: 1 })
  expect([absent.statusCode, absent.json().error.param]).toEqual([404, 'id'])
  const { id } = (await surface.post('/v1/api_keys', { name: 'a' })).json()
  expect((await patch(id, {})).statusCode).toBe(400)
})

it('does not let keys with limits create, rotate or limit keys', async () => {
  const { secret } = (
    await surface.post('/v1/api_keys', { name: 'limited', concurrent_requests: 5 })
  ).json()
  const { id } = (await surface.post('/v1/api_keys', { name: 'free' })).json()
  const headers = { authorization: `Bearer ${secret}` }
  for (const [method, path, payload] of [
    ['POST', '', { name: 'more' }],
    ['PATCH', `/${id}`, { requests_per_minute: 1 }],
    ['POST', `/${id}/rotate`, {}],
  ] as const) {
    const url = `/v1/api_keys${path}`
    const response = await surface.app.inject({ method, url, headers, payload })
    expect([path, response.statusCode, response.json().error.message]).toEqual([
      path,
      403,
      'An API key with limits of its own cannot create, rotate or limit API keys.',
    ])
  }
})
