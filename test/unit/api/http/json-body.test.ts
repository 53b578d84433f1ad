import { fastify } from 'fastify'
import { describe, expect, it } from 'vitest'

import { registerJsonBody } from '#api/http/validation.ts'
import { JSON_LIMITS, JSON_TEXT_LIMITS, judgeJson } from '#shared/json.ts'

const judge = (text: string) => judgeJson(Buffer.from(text))

describe('the judgement of JSON bodies', () => {
  it.each([
    ['an ordinary request', JSON.stringify({ model: 'a', messages: [{ role: 'user' }] })],
    ['the deepest', `{"a":${'['.repeat(199)}${']'.repeat(199)}}`],
    ['as many token ids as may be embedded', `{"input":[${'1,'.repeat(299_999)}1]}`],
    ['brackets and quotes within a text', JSON.stringify({ a: `"${'[{:,'.repeat(200_000)}\\` })],
    ['a text that does not end', `{"a":"${'x'.repeat(100)}\\"`],
    ['nothing', ''],
  ])('lets pass %s', (_title, text) => {
    expect(judge(text)).toBeUndefined()
  })

  it.each([
    ['a million arrays', `{"input":${'['.repeat(1e6)}${']'.repeat(1e6)}}`, 'input', /200 levels/],
    ['a million objects', `{"x":1,"messages":[${'{"a":'.repeat(1e6)}`, 'messages', /200 levels/],
    [
      'too many members',
      `{"logit_bias":{${'"1":1,'.repeat(50_001)}`,
      'logit_bias',
      /50000 members/,
    ],
    ['too many values', `{"input":[${'1,'.repeat(400_001)}`, 'input', /400000 values/],
    ['an array in place of a request', '['.repeat(1000), undefined, /200 levels/],
  ])('refuses %s, naming the parameter', (_title, text, param, message) => {
    expect(judge(text)).toMatchObject({ param, code: 'json_too_complex', kind: 'invalidRequest' })
    expect(judge(text)?.message).toMatch(message)
  })

  it.each([
    ['1e999', 'top'],
    ['-1E+309', 'top'],
    ['9'.repeat(400), 'top'],
    [' 1e999 ', 'top'],
    ['[{"b":[1, 1e999]}]', 'top'],
    ['{"minimum":1e999}', 'top'],
  ])('refuses numbers that are read as Infinity, naming the parameter: %s', (value, param) => {
    const code = 'number_above_max_value'
    expect(judge(`{"a":1,"${param}":${value}}`)).toMatchObject({ param, code })
    expect(judgeJson(Buffer.from(`{"a":${value}}`), JSON_TEXT_LIMITS)).toBeUndefined()
  })

  it.each(['1e308', '"1e999"', 'true', '1e-999', '0.1E5', `0.${'1'.repeat(400)}`, ' '.repeat(400)])(
    'lets pass %s',
    (value) => {
      expect(judge(`{"a":${value},"b":"${'9'.repeat(400)}"}`)).toBeUndefined()
    },
  )

  it.each([
    ['quotes', `{"model":"a","prompt":"${'\\"'.repeat(2_097_153)}"}`],
    ['letters', `{"model":"a","prompt":"${'a'.repeat(4_194_305)}"}`],
  ])('refuses a text of too many %s, naming the parameter', (_title, text) => {
    const code = 'string_above_max_length'
    expect(judge(text)).toMatchObject({ param: 'prompt', code, kind: 'invalidRequest' })
    expect(judge(text.replace('aaa', '').replace('\\"\\"', ''))).toBeUndefined()
  })

  it.each([
    ['a lone continuation byte', [0x80]],
    ['a character that breaks off', [0xc3]],
    ['half of a surrogate pair', [0xed, 0xa0, 0x80]],
    ['Latin-1', [0xe4]],
  ])('refuses what is not UTF-8: %s', async (_title, bytes) => {
    const app = fastify()
    registerJsonBody(app)
    app.post('/', async (request) => request.body)
    const payload = Buffer.concat([Buffer.from('{"a":"'), Buffer.from(bytes), Buffer.from('"}')])
    const headers = { 'content-type': 'application/json' }
    const { statusCode, body } = await app.inject({ method: 'POST', url: '/', payload, headers })
    expect([statusCode, body]).toEqual([400, expect.stringContaining('UTF-8')])
    await app.close()
  })

  it('runs before the parser, which refuses keys that would change prototypes', async () => {
    const app = fastify()
    registerJsonBody(app)
    const schema = { body: { type: 'object' } }
    app.post('/', { schema }, async (request) => request.body)
    app.delete('/thing', async (request) => ({ body: typeof request.body }))
    const send = (payload: string, route: object = { method: 'POST', url: '/' }) =>
      app.inject({
        ...route,
        payload,
        headers: { 'content-type': 'application/json' },
      })
    expect((await send('{"a":[1,"ä"]}')).json()).toEqual({ a: [1, 'ä'] })
    expect((await send('{"__proto__":{"a":1}}')).statusCode).toBe(400)
    expect((await send('{"a":')).statusCode).toBe(400)
    expect((await send('')).statusCode).toBe(400)
    const deletion = { method: 'DELETE', url: '/thing' }
    expect((await send('', deletion)).json()).toEqual({ body: 'undefined' })
    expect((await send('{"a":', deletion)).statusCode).toBe(400)
    expect((await send('['.repeat(JSON_LIMITS.depth + 1))).body).toContain('too complex')
    await app.close()
  })
})
