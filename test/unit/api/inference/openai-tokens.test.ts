import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { parseCatalogue } from '#shared/catalogue.ts'
import type { EmbedInput } from '#shared/contracts/embedding.ts'

import { answering, openSurface } from './surface.ts'

const HEADER = 'x-millrace-ignored-parameters'
const SCRIPT = answering(({ items }: EmbedInput) => ({
  task: 'embed',
  vectors: items.map(() => ''),
  dimensions: 0,
}))
const model = (id: string, rest: object) => ({
  id,
  kind: 'embedding',
  source: 'x',
  capabilities: [],
  ...rest,
})
const CATALOGUE = parseCatalogue({
  models: [
    model('tiny-embed', {
      aliases: ['text-embedding-3-small', 'text-embedding-ada-002', 'gpt-4o'],
    }),
    model('texts', {
      aliases: ['text-embedding-3-large'],
      options: { tokenIdVocabulary: 'reject', queryPrefix: 'query: ' },
    }),
  ],
})
// As tiktoken encodes them.
const HELLO = [9906, 1917]
const PARROT = [370, 11410, 99, 250, 76502, 22656, 45918, 252]

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface(SCRIPT, { catalogue: CATALOGUE })
})
afterAll(() => surface.app.close())

const embed = (fields: object) =>
  surface.post('/v1/embeddings', { model: 'text-embedding-3-small', input: 'Hi', ...fields })
const submitted = () => surface.submitter.requests.at(-1)?.input as unknown as EmbedInput

describe("token ids of OpenAI's encodings", () => {
  it.each<[string, unknown, readonly string[]]>([
    ['text-embedding-3-small', HELLO, ['Hello world']],
    ['text-embedding-ada-002', [HELLO, PARROT], ['Hello world', 'ab 🦜 日本語']],
    ['text-embedding-3-large', [HELLO], ['Hello world']],
    ['gpt-4o', [13225, 2375], ['Hello world']],
    // A cut in the middle of a character.
    ['text-embedding-3-small', [PARROT.slice(0, 3), PARROT.slice(2)], ['ab ', ' 日本語']],
  ])('are embedded as text: %s of %j', async (name, input, items) => {
    const response = await embed({ model: name, input })
    expect(response.statusCode, response.body).toBe(200)
    expect(submitted().items).toEqual(items)
  })

  it('are those of the model itself if the request uses its own name', async () => {
    await embed({ model: 'tiny-embed', input: HELLO })
    expect(submitted().items).toEqual([HELLO])
  })

  it.each([[[100_256]], [[9906, 1_000_000]], [[[9906], [99]]]])(
    'are refused when they are not text: %j',
    async (input) => {
      const response = await embed({ input })
      expect(response.statusCode, response.body).toBe(400)
      expect(response.json().error.param).toBe('input')
    },
  )
})

it.each<[object, object, string | undefined]>([
  [{ task: 'retrieval.query' }, { role: 'none', taskName: 'retrieval.query' }, undefined],
  [{ task: null }, { role: 'none' }, undefined],
  [{ truncation: true }, { tokensMax: 'context' }, undefined],
  [
    { normalize: true, normalized: true, add_special_tokens: true, truncation: false },
    { role: 'none' },
    undefined,
  ],
  [
    { normalize: false, add_special_tokens: false },
    { role: 'none' },
    'normalize, add_special_tokens',
  ],
])('takes %j as other servers do', async (fields, expected, reported) => {
  const response = await embed(fields)
  expect([response.statusCode, response.headers[HEADER]], response.body).toEqual([200, reported])
  expect(submitted()).toMatchObject(expected)
})
