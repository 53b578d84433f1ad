import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { API_KEY, openSurface } from './surface.ts'

const CHAT = '/v1/chat/completions'
const TEXT = '/v1/completions'

describe('a body that cannot be read', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface()
  })
  afterAll(() => surface.app.close())

  it.each([
    ['text that is not JSON', '{"model": '],
    ['an array', '[]'],
    ['a text', '"x"'],
    ['null', 'null'],
    ['nothing', ''],
    ['a forbidden key', '{"model":"tiny-chat","__proto__":{"a":1}}'],
  ])('%s as a body is answered as malformed JSON', async (_title, payload) => {
    const response = await surface.post(CHAT, payload)
    expect(response.statusCode).toBe(400)
    expect(response.json().error).toMatchObject({
      message: expect.stringContaining('We could not parse the JSON body of your request.'),
      type: 'invalid_request_error',
      param: null,
      code: null,
    })
  })

  it.each(['max_tokens', 'seed', 'temperature', 'logit_bias.5'])(
    'a number beyond the range of a double is refused as %s',
    async (param) => {
      const [name, key] = param.split('.')
      const field = key === undefined ? `"${name}":1e999` : `"${name}":{"${key}":1e999}`
      const response = await surface.post(TEXT, `{"model":"tiny-chat","prompt":"a",${field}}`)
      expect(response.statusCode).toBe(400)
      const message = `Invalid '${name}': numbers must be finite.`
      expect(response.json().error).toMatchObject({
        message,
        param: name,
        code: 'number_above_max_value',
      })
    },
  )

  it.each(['text/csv', 'text/plain', 'application/x-www-form-urlencoded'])(
    'a body of type %s is answered with 415',
    async (type) => {
      const response = await surface.post(CHAT, 'model=x', { 'content-type': type })
      expect(response.statusCode).toBe(415)
      // Curl names the last one by default: its users have to learn what to send instead.
      expect(response.json().error).toMatchObject({
        type: 'invalid_request_error',
        message: expect.stringContaining('send JSON as application/json'),
      })
    },
  )

  it('a body over the limit is answered with 413', async () => {
    const response = await surface.post(TEXT, { model: 'tiny-chat', prompt: 'x'.repeat(2 ** 20) })
    expect(response.statusCode).toBe(413)
    expect(response.json().error).toMatchObject({ param: null, code: null })
  })

  it('reveals nothing about validation without a key', async () => {
    const response = await surface.post(CHAT, '{', { authorization: 'Bearer wrong' })
    expect(response.statusCode).toBe(401)
    expect(response.body).not.toContain(API_KEY)
  })
})

describe('a refusal', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface()
  })
  afterAll(() => surface.app.close())

  it('of the body of a response as a chat names the route of responses', async () => {
    const body = { model: 'tiny-chat', input: [{ role: 'user', content: 'Hi' }], stream: true }
    const response = await surface.post(CHAT, body)
    expect([response.statusCode, response.json().error]).toEqual([
      400,
      expect.objectContaining({
        message: expect.stringContaining('/v1/responses'),
        param: 'messages',
        code: 'missing_required_parameter',
      }),
    ])
    const both = { ...body, stream: false, messages: body.input }
    expect((await surface.post(CHAT, both)).body).not.toContain('/v1/responses')
  })

  it.each([
    ['/v1/embeddings', { model: 'none', input: 'x' }, 404],
    ['/v1/rerank', { model: 'none', query: 'x' }, 400],
    ['/v1/multi-vector', { model: 'none' }, 400],
  ])('of %s has the detail that the clients of Voyage and Jina show', async (url, body, status) => {
    const response = await surface.post(url, body)
    const { error, detail } = response.json()
    expect([response.statusCode, detail]).toEqual([status, error.message])
    const stranger = { authorization: 'Bearer wrong' }
    expect((await surface.post(url, body, stranger)).json().detail).toContain('Incorrect API key')
  })

  it('names the field in the detail where the message does not', async () => {
    const body = { model: 'tiny-embed', input: 'x', output_dtype: 'int8' }
    const { error, detail } = (await surface.post('/v1/embeddings', body)).json()
    expect(detail).toBe(`output_dtype: ${error.message}`)
  })
})
