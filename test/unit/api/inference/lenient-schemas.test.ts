import { afterAll, beforeAll, expect, it } from 'vitest'

import { openSurface } from './surface.ts'

const HEADER = 'x-millrace-ignored-parameters'
const CHAT = { model: 'tiny-chat', messages: [{ role: 'user', content: 'Say hello' }] }

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface()
})
afterAll(() => surface.app.close())

const schemaOf = (property: object): object => ({ type: 'object', properties: { a: property } })

// The schema that pydantic writes for `Set[str]`, and keywords that no grammar enforces.
it.each<[object, object, string]>([
  [
    { type: 'array', items: { type: 'string' }, uniqueItems: true },
    { type: 'array', items: { type: 'string' } },
    'uniqueItems',
  ],
  [{ type: 'string', not: { const: 'x' } }, { type: 'string' }, 'not'],
  [{ type: 'string', pattern: '\\bx' }, { type: 'string' }, 'pattern'],
  [{ type: 'string', pattern: '\\p{L}+' }, { type: 'string' }, 'pattern'],
  [{ type: 'string', pattern: '(?=x)x' }, { type: 'string' }, 'pattern'],
  [{ type: 'string', format: 'iri' }, { type: 'string' }, 'format'],
  [{ $ref: 'https://example.test/schema' }, {}, '$ref'],
  [{ anyOf: [{ contains: {} }, {}] }, { anyOf: [{}, {}] }, 'anyOf[].contains'],
])('drops and reports from %j what cannot be enforced', async (property, kept, keyword) => {
  const schema = schemaOf(property)
  const format = { type: 'json_schema', json_schema: { name: 'x', schema } }
  const response = await surface.post('/v1/chat/completions', { ...CHAT, response_format: format })
  expect(response.statusCode, response.body).toBe(200)
  expect(surface.submitter.input.responseFormat).toEqual({
    type: 'jsonSchema',
    schema: schemaOf(kept),
  })
  expect(response.headers[HEADER]).toBe(
    `response_format.json_schema.schema.properties.a.${keyword}`,
  )
})

it('keeps a name that is not a keyword, and names that patterns allow', async () => {
  const schema = {
    type: 'object',
    properties: { not: { type: 'string' } },
    patternProperties: { '^x': {} },
    additionalProperties: false,
  }
  const tools = [{ type: 'function', function: { name: 'add', parameters: schema } }]
  const response = await surface.post('/v1/chat/completions', { ...CHAT, tools })
  const path = 'tools[0].function.parameters'
  expect(response.headers[HEADER]).toBe(`${path}.patternProperties, ${path}.additionalProperties`)
  expect(surface.submitter.input.prompts[0]).toMatchObject({
    tools: [{ parameters: { properties: { not: { type: 'string' } } } }],
  })
})

it('reads exclusive bounds of draft 4', async () => {
  const property = { type: 'integer', minimum: 1, exclusiveMinimum: true, exclusiveMaximum: false }
  const format = { type: 'json_object', schema: schemaOf(property) }
  const response = await surface.post('/v1/chat/completions', { ...CHAT, response_format: format })
  expect([response.statusCode, response.headers[HEADER]]).toEqual([200, undefined])
  expect(surface.submitter.input.responseFormat).toEqual({
    type: 'jsonSchema',
    schema: schemaOf({ type: 'integer', exclusiveMinimum: 1 }),
    path: 'response_format.schema',
  })
})

it('passes strict schemas on as they are, so that the worker refuses them', async () => {
  const schema = { ...schemaOf({ type: 'array', uniqueItems: true }), additionalProperties: false }
  const strict = { ...schema, required: ['a'] }
  const format = { type: 'json_schema', json_schema: { name: 'x', schema: strict, strict: true } }
  await surface.post('/v1/chat/completions', { ...CHAT, response_format: format })
  expect(surface.submitter.input.responseFormat).toEqual({
    type: 'jsonSchema',
    schema: strict,
    isStrict: true,
  })
})
