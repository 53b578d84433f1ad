import { afterAll, beforeAll, expect, it } from 'vitest'

import { openSurface } from './surface.ts'

const HEADER = 'x-millrace-ignored-parameters'
const SCHEMA = { type: 'object', properties: { a: { type: 'string' } } }
const asJson = (path: string) => ({ type: 'jsonSchema', schema: SCHEMA, path })
const GRAMMAR = 'root ::= "yes" | "no"'

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface(undefined, { unknownFields: 'ignore' })
})
afterAll(() => surface.app.close())

const ROUTES: readonly [string, object][] = [
  ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }] }],
  ['/v1/completions', { prompt: 'Hi' }],
]
const post = (url: string, fields: object) => surface.post(url, { model: 'tiny-chat', ...fields })

// As vLLM took structural tags first.
const TAGS = {
  structures: [{ begin: '<f=a>', schema: SCHEMA, end: '</f>' }],
  triggers: ['<f='],
}
const asTags = (path: string) => ({
  type: 'structuralTag',
  path,
  format: {
    kind: 'triggered',
    triggers: ['<f='],
    excludes: [],
    atLeastOne: false,
    stopAfterFirst: false,
    tags: [
      {
        kind: 'tag',
        begin: '<f=a>',
        ends: ['</f>'],
        content: { kind: 'json', schema: SCHEMA, path: `${path}.structures[0].schema` },
      },
    ],
  },
})

it.each<[object, object]>([
  [{ guided_json: SCHEMA }, asJson('guided_json')],
  [{ guided_json: JSON.stringify(SCHEMA) }, asJson('guided_json')],
  [
    { guided_regex: '\\d+', guided_choice: null },
    { type: 'regex', pattern: '\\d+', path: 'guided_regex' },
  ],
  [{ guided_choice: ['yes', 'no', 'yes'] }, { type: 'choice', choices: ['yes', 'no'] }],
  [{ guided_grammar: GRAMMAR }, { type: 'grammar', grammar: GRAMMAR, path: 'guided_grammar' }],
  [{ grammar: GRAMMAR }, { type: 'grammar', grammar: GRAMMAR, path: 'grammar' }],
  [{ json_schema: SCHEMA }, asJson('json_schema')],
  [{ structured_outputs: { json: SCHEMA } }, asJson('structured_outputs.json')],
  [{ structured_outputs: { json_object: true } }, { type: 'jsonObject' }],
  [
    { structured_outputs: { regex: 'a|b' } },
    { type: 'regex', pattern: 'a|b', path: 'structured_outputs.regex' },
  ],
  [{ structured_outputs: { choice: ['a'] } }, { type: 'choice', choices: ['a'] }],
  [
    { structured_outputs: { grammar: GRAMMAR } },
    { type: 'grammar', grammar: GRAMMAR, path: 'structured_outputs.grammar' },
  ],
  [{ response_format: { type: 'json_object', schema: SCHEMA } }, asJson('response_format.schema')],
  [{ response_format: { type: 'json_schema', schema: SCHEMA } }, asJson('response_format.schema')],
  [{ response_format: { type: 'json', value: SCHEMA } }, asJson('response_format.value')],
  [{ response_format: { type: 'json_object', value: SCHEMA } }, asJson('response_format.value')],
  [
    { response_format: { type: 'json_schema', value: { name: 'x', schema: SCHEMA } } },
    asJson('response_format.value'),
  ],
  ...[TAGS, JSON.stringify(TAGS)].map((tag): [object, object] => [
    { structured_outputs: { structural_tag: tag } },
    asTags('structured_outputs.structural_tag'),
  ]),
  [{ structural_tag: TAGS }, asTags('structural_tag')],
  [{ response_format: { type: 'structural_tag', ...TAGS } }, asTags('response_format')],
  [
    { response_format: { type: 'regex', value: 'a+' } },
    { type: 'regex', pattern: 'a+', path: 'response_format.value' },
  ],
])('every route that writes text takes %j', async (fields, expected) => {
  for (const [url, request] of ROUTES) {
    const response = await post(url, { ...request, ...fields })
    expect(response.statusCode, response.body).toBe(200)
    expect(surface.submitter.input.responseFormat).toEqual(expected)
    expect(response.headers).not.toHaveProperty(HEADER)
  }
})

it.each<[object, string, RegExp]>([
  [
    { guided_json: SCHEMA, response_format: { type: 'json', value: SCHEMA } },
    'response_format',
    /'guided_json' and 'response_format' cannot be given together/,
  ],
  [{ guided_regex: 'a', guided_choice: ['b'] }, 'guided_choice', /cannot be given together/],
  [{ guided_json: '{"type":' }, 'guided_json', /./],
  [{ structural_tag: { structures: [], triggers: [] } }, 'structural_tag.structures', /at least/],
  [{ structural_tag: '{}' }, 'structural_tag.format', /Missing/],
  [
    { response_format: { type: 'structural_tag', format: { type: 'any_tokens' } } },
    'response_format.format.type',
    /any_text/,
  ],
  [
    { structured_outputs: { structural_tag: { ...TAGS, triggers: ['<g='] } } },
    'structured_outputs.structural_tag.triggers',
    /no trigger begins "<f=a>"/,
  ],
  // Each is compared with every tag, also those that are beyond the first.
  [
    { structural_tag: { ...TAGS, triggers: Array.from({ length: 129 }, (_, at) => `<${at}`) } },
    'structural_tag.triggers',
    /expected 1 to 128 texts, but got 129/,
  ],
  [{ response_format: { type: 'regex' } }, 'response_format.value', /Missing/],
  [{ response_format: { type: 'json', value: 'x' } }, 'response_format.value', /./],
  [{ guided_choice: [] }, 'guided_choice', /./],
  [{ guided_grammar: GRAMMAR, min_tokens: 5 }, 'min_tokens', /demands a form/],
])('every route that writes text refuses %j and names %s', async (fields, param, message) => {
  for (const [url, request] of ROUTES) {
    const { statusCode, body } = await post(url, { ...request, ...fields })
    expect(statusCode, body).toBe(400)
    expect(JSON.parse(body).error).toMatchObject({ param })
    expect(JSON.parse(body).error.message).toMatch(message)
  }
})

it('reports requirements of a guided schema that have no effect, and other decoder fields', async () => {
  const [url, request] = ROUTES[0] as (typeof ROUTES)[0]
  const set = { type: 'array', items: { type: 'string' }, uniqueItems: true }
  const response = await post(url, {
    ...request,
    guided_json: set,
    guided_decoding_backend: 'outlines',
  })
  expect(response.headers[HEADER]).toBe('guided_decoding_backend, guided_json.uniqueItems')
})
