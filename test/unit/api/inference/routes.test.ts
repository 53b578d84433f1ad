import { Value } from 'typebox/value'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { CATALOGUE, openSurface } from './surface.ts'

const MESSAGES = [{ role: 'user', content: 'Hi' }]

describe('the routes', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface(undefined, {
      workers: async () => [
        {
          queues: [
            { kind: 'completion', modelId: 'tiny-chat', isReady: true },
            { kind: 'completion', modelId: 'org/base:v1', isReady: false },
          ],
        },
      ],
    })
  })
  afterAll(() => surface.app.close())

  it('list the models with the fields that old clients read', async () => {
    const { object, data } = (await surface.get('/v1/models')).json()
    expect(object).toBe('list')
    expect(data).toHaveLength(CATALOGUE.models.length)
    expect(data[0]).toMatchObject({
      id: 'tiny-chat',
      object: 'model',
      created: 1_700_000_000,
      owned_by: 'millrace',
      root: 'tiny-chat',
      parent: null,
      permission: [],
    })
  })

  it('answer under addresses that end with a slash, too', async () => {
    expect((await surface.get('/v1/models/')).json().data).toHaveLength(CATALOGUE.models.length)
    expect((await surface.get('/v1/engines/tiny-chat/?a=b')).json().id).toBe('tiny-chat')
    const chat = await surface.post('/v1/chat/completions/', {
      model: 'tiny-chat',
      messages: MESSAGES,
    })
    expect(chat.json().object).toBe('chat.completion')
    expect((await surface.get('/v1/nothing/')).json().error.message).toBe(
      'Invalid URL (GET /v1/nothing)',
    )
  })

  it.each(['org/base:v1', 'org%2Fbase:v1', 'org%2Fbase%3Av1'])('show the model %s', async (id) => {
    const model = await surface.get(`/v1/models/${id}`)
    expect(model.json()).toMatchObject({ id: 'org/base:v1', object: 'model' })
    const engine = await surface.get(`/v1/engines/${id}`)
    expect(engine.json()).toEqual({
      id: 'org/base:v1',
      object: 'engine',
      owner: 'millrace',
      ready: false,
      created: null,
      permissions: null,
    })
  })

  it('call an engine ready when a live worker has it loaded', async () => {
    const { data } = (await surface.get('/v1/engines')).json()
    const ready = data.map((engine: { id: string; ready: boolean }) => [engine.id, engine.ready])
    expect(ready.slice(0, 2)).toEqual([
      ['tiny-chat', true],
      ['org/base:v1', false],
    ])
  })

  it.each(['/v1/models/nope', '/v1/models/a/b', '/v1/engines/nope', '/v1/engines/a/b'])(
    'do not know the model of %s',
    async (url) => {
      const response = await surface.get(url)
      expect(response.statusCode).toBe(404)
      expect(response.json().error).toMatchObject({
        message: expect.stringMatching(/^The model `.*` does not exist or you do not have access/),
        type: 'invalid_request_error',
        code: 'model_not_found',
      })
    },
  )

  it.each([
    ['/v1/completions', 'nope', 'model_not_found', null, /does not exist/],
    [
      '/v1/completions',
      'only-chat',
      null,
      'model',
      /^This is a chat model .*v1\/chat\/completions\?$/,
    ],
    ['/v1/completions', 'tiny-embed', null, 'model', /made for embedding requests/],
    ['/v1/chat/completions', 'org/base:v1', null, 'model', /^This is not a chat model/],
    ['/v1/chat/completions', 'tiny-embed', null, 'model', /made for embedding requests/],
  ])('%s with the model %s is answered with 404', async (url, model, code, param, message) => {
    const fields = url.includes('chat') ? { messages: MESSAGES } : { prompt: 'Hi' }
    const response = await surface.post(url, { model, ...fields })
    expect(response.statusCode).toBe(404)
    expect(response.json().error).toMatchObject({ code, param })
    expect(response.json().error.message).toMatch(message)
  })

  it.each([
    ['/v1/engines/tiny-chat/completions', { prompt: 'Hi' }],
    ['/v1/engines/gpt-3.5-turbo/completions', { prompt: 'Hi', model: 'other' }],
    ['/v1/engines/tiny-chat/chat/completions', { messages: MESSAGES }],
    ['/v1//completions', { prompt: 'Hi', model: 'tiny-chat' }],
  ])('serve the older path %s', async (url, body) => {
    const response = await surface.post(url, body)
    expect([response.statusCode, response.json().model]).toEqual([200, 'tiny-chat'])
  })

  it.each([
    ['/v1/engines//chat/completions', '/v1/engines//chat/completions'],
    ['/v1/engines//completions', '/v1/engines//completions'],
    ['/v1/chat//completions', '/v1/chat//completions'],
    ['/v1/foo?a=1', '/v1/foo'],
    ['/v1/chat/nothing', '/v1/chat/nothing'],
  ])('answer the unknown path %s in their own words, without a key', async (url, shown) => {
    const response = await surface.app.inject({ method: 'POST', url })
    expect(response.statusCode).toBe(404)
    expect(response.json().error).toEqual({
      message: `Invalid URL (POST ${shown})`,
      type: 'invalid_request_error',
      param: null,
      code: null,
    })
  })

  it.each([
    ['/v1/vector_stores', /^Invalid URL \(POST \/v1\/vector_stores\)\. .* use \/v1\/embeddings/],
    ['/v1/messages/batches', / use \/v1\/batches with the endpoint \/v1\/messages\./],
    ['/v1/chat', / use \/v1\/chat\/completions\.$/],
    ['/v1/chat/other', /^Invalid URL \(POST \/v1\/chat\/other\)$/],
    ['/v1/messages/other', /^Invalid URL \(POST \/v1\/messages\/other\)$/],
    ['/v1/vector_stores/vs_1/search', / use \/v1\/embeddings, \/v1\/rerank and a function/],
    ['/v1/assistants', / use \/v1\/responses with a conversation/],
    ['/v1/threads/runs', / use \/v1\/responses with a conversation/],
    ['/v1/organization/costs', / use \/v1\/usage, \/v1\/api_keys and/],
    ['/v1/v1/embeddings', /\)\. Did you mean \/v1\/embeddings\? Check the base URL/],
    ['/v1/constructor', /^Invalid URL \(POST \/v1\/constructor\)$/],
  ])('name what to use instead of %s', async (url, message) => {
    const { error } = (await surface.post(url, {})).json()
    expect(error).toMatchObject({ type: 'invalid_request_error', code: null })
    expect(error.message).toMatch(message)
  })

  it.each([
    ['/chat/completions', / Did you mean \/v1\/chat\/completions\? Check the base URL/],
    ['/openai/v1/models', / Did you mean \/v1\/models\?/],
    ['/models/org/base', / Did you mean \/v1\/models\/org\/base\?/],
    ['/api/chat', /\. It is not served here; use \/v1\/chat\/completions\.$/],
    ['/tokenizer_info', / use the files of the model, or \/tokenize and \/detokenize\.$/],
    ['/openai/deployments/gpt-4o/chat/completions', / use \/v1 as the base URL of a client/],
    ['/nothing', /\. See \/docs for what is served here\.$/],
  ])('name what to use instead of %s at the root', async (url, message) => {
    const { error } = (await surface.post(url, {})).json()
    expect(error).toMatchObject({ type: 'invalid_request_error', code: 'unknown_url' })
    expect(error.message).toMatch(message)
  })

  it.each([
    ['POST', '/v1/models', 'GET, HEAD'],
    ['GET', '/v1/chat/completions', 'POST'],
    ['DELETE', '/v1/models/a/b', 'GET, HEAD'],
    ['PUT', '/v1/api_keys/k', 'PATCH, DELETE'],
    ['TRACE', '/v1/models', 'GET, HEAD'],
    ['QUERY', '/v1/embeddings', 'POST'],
    ['TRACE', '/detokenize', 'POST'],
    ['QUERY', '/version', 'GET, HEAD'],
    ['PUT', '/healthz', 'GET, HEAD'],
  ] as const)('answer %s %s with 405 and the methods it knows', async (method, url, allow) => {
    const response = await surface.app.inject({ method, url })
    expect(response.statusCode).toBe(405)
    expect(response.headers.allow).toBe(allow)
    expect(response.json().error.message).toBe(
      `Not allowed to ${method} on ${url}. (HINT: Perhaps you meant to use a different HTTP method?)`,
    )
  })

  it('are all in the OpenAPI document with summary, tags and responses', async () => {
    const { paths } = (await surface.app.inject({ url: '/openapi.json' })).json()
    const served = Object.keys(paths).filter((path) => path.startsWith('/v1'))
    expect(served.sort()).toEqual([
      '/v1/api_keys',
      '/v1/api_keys/{id}',
      '/v1/api_keys/{id}/rotate',
      '/v1/audio/models',
      '/v1/audio/speech',
      '/v1/audio/transcriptions',
      '/v1/audio/translations',
      '/v1/audio/voices',
      '/v1/chat/completions',
      '/v1/chat/completions/batch',
      '/v1/classify',
      '/v1/completions',
      '/v1/detokenize',
      '/v1/edits',
      '/v1/embed',
      '/v1/embed_sparse',
      '/v1/embeddings',
      '/v1/engines',
      '/v1/engines/{engine_id}',
      '/v1/engines/{engine_id}/chat/completions',
      '/v1/engines/{engine_id}/completions',
      '/v1/engines/{engine_id}/edits',
      '/v1/engines/{engine_id}/embeddings',
      '/v1/engines/{engine_id}/search',
      '/v1/images/edits',
      '/v1/images/generations',
      '/v1/images/variations',
      '/v1/media/{folder}/{name}',
      '/v1/messages',
      '/v1/messages/count_tokens',
      '/v1/models',
      '/v1/models/{model}',
      '/v1/moderations',
      '/v1/multi-vector',
      '/v1/rerank',
      '/v1/responses',
      '/v1/responses/compact',
      '/v1/responses/input_tokens',
      '/v1/score',
      '/v1/tokenize',
    ])
    for (const path of served) {
      for (const operation of Object.values(paths[path])) {
        expect(operation, path).toMatchObject({
          operationId: expect.any(String),
          summary: expect.any(String),
          tags: [expect.any(String)],
          responses: {
            '200': expect.anything(),
            // A signed address needs no key.
            [path.startsWith('/v1/media/') ? '403' : '401']: expect.anything(),
          },
        })
      }
    }
    const content = paths['/v1/chat/completions'].post.responses['200'].content
    expect(Object.keys(content)).toEqual(['application/json', 'text/event-stream'])
    const { schema } = paths['/v1/completions'].post.requestBody.content['application/json']
    expect(schema.properties.max_tokens).toMatchObject({ type: ['integer', 'null'], default: 16 })
  })
})

describe('the answers', () => {
  it('fit the schemas of the OpenAPI document', async () => {
    const surface = await openSurface()
    const { paths, components } = (await surface.app.inject({ url: '/openapi.json' })).json()
    const rows = [
      ['get', '/v1/models', undefined],
      ['get', '/v1/engines', undefined],
      ['get', '/v1/api_keys', undefined],
      ['post', '/v1/api_keys', { name: 'x' }],
      ['post', '/v1/completions', { model: 'tiny-chat', logprobs: 1 }],
      ['post', '/v1/chat/completions', { model: 'tiny-chat', messages: MESSAGES }],
      ['post', '/v1/responses', { model: 'tiny-chat', input: 'Hi' }],
      ['post', '/v1/completions', { model: 'nope' }],
      ['post', '/v1/edits', { model: 'tiny-chat', instruction: 'x' }],
    ] as const
    for (const [method, path, body] of rows) {
      const answer = method === 'get' ? await surface.get(path) : await surface.post(path, body)
      const { content } = paths[path][method].responses[answer.statusCode]
      const { $ref, ...written } = content['application/json'].schema
      const schema = $ref === '#/components/schemas/Error' ? components.schemas.Error : written
      expect([...Value.Errors(schema, answer.json())], path).toEqual([])
      expect(Value.Check(schema, { object: 'other' }), path).toBe(false)
    }
    await surface.app.close()
  })
})

describe('the keys', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface()
    const expiresAt = new Date(surface.clock.nowMs + 1_000_000)
    surface.keys.add('sk-narrow', { scopes: ['chat', 'keys'], modelIds: ['tiny-chat'], expiresAt })
  })
  afterAll(() => surface.app.close())

  it('are created with a secret that is shown once, listed, and revoked', async () => {
    const body = { name: 'ci', scopes: ['chat'], models: ['gpt-3.5-turbo'] }
    const made = (await surface.post('/v1/api_keys', body)).json()
    expect(made).toMatchObject({
      object: 'api_key',
      name: 'ci',
      scopes: ['chat'],
      models: ['tiny-chat'],
      expires_at: null,
      secret: expect.any(String),
    })
    const { data, has_more } = (await surface.get('/v1/api_keys')).json()
    expect(has_more).toBe(false)
    expect(data.map(({ id }: { id: string }) => id)).toContain(made.id)
    expect(JSON.stringify(data)).not.toContain(made.secret)
    const revoke = () =>
      surface.app.inject({
        method: 'DELETE',
        url: `/v1/api_keys/${made.id}`,
        headers: { authorization: 'Bearer sk-narrow' },
      })
    expect((await revoke()).json()).toEqual({ id: made.id, object: 'api_key', deleted: true })
    expect((await revoke()).statusCode).toBe(404)
  })

  it.each([
    ['more scopes', { scopes: ['chat', 'files'] }, 'scopes'],
    ['more models', { models: ['org/base:v1'] }, undefined],
    ['a longer life', { expires_at: 4_000_000_000 }, 'expires_at'],
  ])('never get %s than their creator has', async (_title, fields, param) => {
    const headers = { authorization: 'Bearer sk-narrow' }
    const response = await surface.post('/v1/api_keys', { name: 'x', ...fields }, headers)
    // A model that the creator may not use does not exist for it.
    expect(response.statusCode).toBe(param === undefined ? 404 : 403)
    if (param !== undefined) expect(response.json().error.param).toBe(param)
  })

  it('inherit omitted fields from their creator', async () => {
    const headers = { authorization: 'Bearer sk-narrow' }
    const made = (await surface.post('/v1/api_keys', { name: 'x' }, headers)).json()
    expect(made).toMatchObject({
      scopes: ['chat', 'keys'],
      models: ['tiny-chat'],
      expires_at: surface.clock.nowMs / 1000 + 1000,
    })
  })

  it.each([
    [{}, 'name'],
    [{ name: '' }, 'name'],
    [{ name: 'x', scopes: ['everything'] }, 'scopes[0]'],
    [{ name: 'x', expires_at: 5 }, 'expires_at'],
    [{ name: 'x', organization_id: 'org-other' }, 'organization_id'],
  ])('cannot be made from %o', async (body, param) => {
    const response = await surface.post('/v1/api_keys', body)
    expect([response.statusCode, response.json().error.param]).toEqual([400, param])
  })
})
