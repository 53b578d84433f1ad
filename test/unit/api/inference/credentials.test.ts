import { describe, expect, it } from 'vitest'

import type { UserAccess } from '#api/v1/credentials.ts'
import { failure } from '#shared/errors.ts'

import { API_KEY, openSurface } from './surface.ts'

const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`
const ask = async (
  surface: Awaited<ReturnType<typeof openSurface>>,
  headers: Record<string, string>,
  url = '/v1/models',
) => surface.app.inject({ url, headers })

describe('the credential of a request', () => {
  it.each([
    ['a bearer key', `Bearer ${API_KEY}`],
    ['a bearer key in any spelling', `bearer   ${API_KEY}`],
    ['a key as the password of a blank user', basic(`:${API_KEY}`)],
  ])('%s is accepted', async (_title, authorization) => {
    const surface = await openSurface()
    expect((await ask(surface, { authorization })).statusCode).toBe(200)
  })

  it.each([
    ['nothing', undefined, null, /^You didn't provide an API key\./],
    ['an empty key', 'Bearer ', null, /^You didn't provide an API key\./],
    ['an empty password', basic(':'), null, /^You didn't provide an API key\./],
    ['a wrong key', 'Bearer sk-abcdefghijklmnopWXYZ', 'invalid_api_key', /: sk-abcd\*+WXYZ\./],
    ['a short wrong key', 'Bearer secret', 'invalid_api_key', /provided: \*\*\*\*\./],
    ['an enormous key', `Bearer ${'x'.repeat(5000)}`, 'invalid_api_key', /^Incorrect API key/],
    ['another scheme', 'Digest abc', 'invalid_api_key', /^Invalid Authorization header/],
    ['a user with a password', basic(`me:${API_KEY}`), 'invalid_api_key', /^Invalid Authoriz/],
    ['a token where no users are', 'Bearer eyJh.eyJz.sig', 'invalid_api_key', /^Incorrect API key/],
  ])('%s is refused with 401', async (_title, authorization, code, message) => {
    const surface = await openSurface()
    const headers: Record<string, string> = authorization === undefined ? {} : { authorization }
    const response = await ask(surface, headers)
    expect(response.statusCode).toBe(401)
    expect(response.headers['www-authenticate']).toBe('Bearer realm="Millrace API"')
    expect(response.headers['openai-organization']).toBeUndefined()
    const { error } = response.json()
    expect(error).toMatchObject({ type: 'invalid_request_error', param: null, code })
    expect(error.message).toMatch(message)
  })

  it.each(['authorization', 'x-api-key', 'api-key'])(
    'answers to a key in %s, and refusals, are kept by no shared cache',
    async (name) => {
      const surface = await openSurface()
      for (const key of [API_KEY, 'sk-wrong']) {
        const value = name === 'authorization' ? `Bearer ${key}` : key
        const { headers } = await ask(surface, { [name]: value })
        expect(headers['cache-control']).toBe('private, no-cache')
      }
    },
  )

  it('an expired key is refused', async () => {
    const surface = await openSurface()
    surface.keys.add('sk-old', { expiresAt: new Date(surface.clock.nowMs - 1) })
    expect((await ask(surface, { authorization: 'Bearer sk-old' })).statusCode).toBe(401)
  })

  it('a key is looked up once a second, and a revoked one stops within it', async () => {
    const surface = await openSurface()
    await Promise.all([surface.get('/v1/models'), surface.get('/v1/models')])
    await surface.get('/v1/models')
    expect(surface.keys.lookups).toBe(1)
    surface.keys.bySecret.clear()
    expect((await surface.get('/v1/models')).statusCode).toBe(200)
    surface.clock.nowMs += 1000
    expect((await surface.get('/v1/models')).statusCode).toBe(401)
  })

  it('a key that was seen lately works while the database is away', async () => {
    const surface = await openSurface()
    await surface.get('/v1/models')
    surface.keys.failure = failure.overloaded('away')
    surface.clock.nowMs += 60_000
    expect((await surface.get('/v1/models')).statusCode).toBe(200)
    expect((await ask(surface, { authorization: 'Bearer sk-unseen-key' })).statusCode).toBe(503)
    surface.clock.nowMs += 3_600_000
    expect((await surface.get('/v1/models')).statusCode).toBe(503)
  })

  it('a key that was used recently works while the database does not answer', async () => {
    const surface = await openSurface()
    await surface.get('/v1/models')
    surface.keys.isSilent = true
    surface.clock.nowMs += 60_000
    expect((await surface.get('/v1/models')).statusCode).toBe(200)
    // The query in flight has been waited for long enough by now.
    surface.clock.nowMs += 1000
    expect((await surface.get('/v1/models')).statusCode).toBe(200)
    expect(surface.keys.lookups).toBe(2)
  })

  it('the use of a key is recorded once a minute', async () => {
    const surface = await openSurface()
    for (const waitMs of [0, 1000, 58_000, 1000]) {
      surface.clock.nowMs += waitMs
      await surface.get('/v1/models')
    }
    expect(surface.keys.touched).toEqual(['key_0', 'key_0'])
  })

  it("ignores and reports a header that names another organization than the key's", async () => {
    const surface = await openSurface()
    const authorization = `Bearer ${API_KEY}`
    const own = await ask(surface, { authorization, 'openai-organization': 'org-test' })
    expect([own.statusCode, own.headers['x-millrace-ignored-parameters']]).toEqual([200, undefined])
    const foreign = { 'openai-organization': 'org-other', 'openai-project': 'proj_1' }
    const other = await ask(surface, { authorization, ...foreign })
    expect(other.statusCode).toBe(200)
    expect(other.headers).toMatchObject({
      'openai-organization': 'org-test',
      'x-millrace-ignored-parameters': 'OpenAI-Organization, OpenAI-Project',
    })
  })

  it('a key with scopes is refused elsewhere, and one with models sees only these', async () => {
    const surface = await openSurface()
    surface.keys.add('sk-chat', { scopes: ['chat'], modelIds: ['org/base:v1'] })
    const headers = { authorization: 'Bearer sk-chat' }
    const text = await surface.post('/v1/completions', { model: 'tiny-chat' }, headers)
    expect(text.statusCode).toBe(403)
    expect(text.json().error).toMatchObject({
      message: 'You have insufficient permissions for this operation. Missing scopes: completions.',
      code: 'missing_scope',
    })
    const messages = [{ role: 'user', content: 'Hi' }]
    const chat = await surface.post(
      '/v1/chat/completions',
      { model: 'tiny-chat', messages },
      headers,
    )
    expect([chat.statusCode, chat.json().error.code]).toEqual([404, 'model_not_found'])
    const models = await ask(surface, headers)
    expect(models.json().data.map(({ id }: { id: string }) => id)).toEqual(['org/base:v1'])
  })
})

describe("a user's access token", () => {
  const access: UserAccess = {
    userId: 'u1',
    organizations: [
      { id: 'org-own', role: 'owner' },
      { id: 'org-work', role: 'member' },
    ],
  }
  const verifyAccessToken = async (token: string) => (token.endsWith('good') ? access : undefined)
  const authorization = 'Bearer eyJh.eyJz.good'

  it('acts for the first organization, or the one that the header names', async () => {
    const surface = await openSurface(undefined, { verifyAccessToken })
    const own = await ask(surface, { authorization })
    const work = await ask(surface, { authorization, 'openai-organization': 'org-work' })
    const organizations = [own, work].map(({ headers }) => headers['openai-organization'])
    expect(organizations).toEqual(['org-own', 'org-work'])
  })

  it('is refused when it is wrong or names a foreign organization', async () => {
    const surface = await openSurface(undefined, { verifyAccessToken })
    const wrong = await ask(surface, { authorization: 'Bearer eyJh.eyJz.bad' })
    expect(wrong.json().error.code).toBe('invalid_api_key')
    const foreign = await ask(surface, { authorization, 'openai-organization': 'org-x' })
    expect(foreign.json().error).toMatchObject({
      message: 'No such organization: org-x.',
      code: 'invalid_organization',
    })
  })

  it('ignores and reports a foreign organization if the user has only one', async () => {
    const [only] = access.organizations
    const surface = await openSurface(undefined, {
      verifyAccessToken: async () => ({ ...access, organizations: only ? [only] : [] }),
    })
    const foreign = await ask(surface, { authorization, 'openai-organization': 'org-x' })
    expect([foreign.statusCode, foreign.headers['x-millrace-ignored-parameters']]).toEqual([
      200,
      'OpenAI-Organization',
    ])
  })

  it('manages keys for owners, not for members', async () => {
    const surface = await openSurface(undefined, { verifyAccessToken })
    const own = await ask(surface, { authorization }, '/v1/api_keys')
    const headers = { authorization, 'openai-organization': 'org-work' }
    const work = await ask(surface, headers, '/v1/api_keys')
    expect([own.statusCode, work.statusCode]).toEqual([200, 403])
  })
})
