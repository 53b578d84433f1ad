import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { readLines } from '#api/http/lines.ts'
import { BestDocuments, KeywordRanking, termsOf } from '#api/inference/embeddings/bm25.ts'
import type { ScoreInput } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'

import { itRefuses, type Refusal } from './refusals.ts'
import { answering, openSurface, type Script } from './surface.ts'

const URL = '/v1/engines/tiny-chat/search'
const LINES = [
  { text: 'The hospital treats the sick.', metadata: 'health' },
  { text: 'The president lives in the White House.', metadata: { place: 1 } },
  { text: 'Pupils learn at school.\u2028They read.' },
  { text: 'A white house stands on the hill.' },
]
const byLength = answering(({ documents }: ScoreInput) => ({
  task: 'score',
  scores: documents.map(({ length }) => length / 3),
}))

describe('POST /v1/engines/{engine_id}/search', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  let folder = ''
  let store: ReturnType<typeof openDirectoryStore>
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-search-'))
    store = openDirectoryStore(folder)
    await store.put('files/one', Buffer.from(LINES.map((line) => JSON.stringify(line)).join('\n')))
    const rows: Record<string, { purpose: string; bytes: number }> = {
      'file-one': { purpose: 'search', bytes: 300 },
      'file-batch': { purpose: 'batch', bytes: 300 },
      'file-huge': { purpose: 'search', bytes: 2 ** 30 },
      'file-large': { purpose: 'search', bytes: 300 },
    }
    surface = await openSurface(byLength, {
      store,
      files: {
        find: async (organizationId, id) =>
          organizationId === 'org-test' && rows[id] !== undefined
            ? { objectKey: id === 'file-large' ? 'files/large' : 'files/one', ...rows[id] }
            : undefined,
      },
    })
  })
  afterAll(async () => {
    await surface.app.close()
    await rm(folder, { recursive: true })
  })
  const ask = (fields: object) => surface.post(URL, { query: 'the president', ...fields })
  async function askWith(script: Script, fields: object) {
    surface.submitter.script = script
    const response = await ask(fields)
    surface.submitter.script = byLength
    return response
  }
  const asked = () => surface.submitter.requests.at(-1)?.input as unknown as ScoreInput

  it('scores documents in their order, not below 0, to three decimals', async () => {
    const scores = answering({ task: 'score', scores: [12.34567, -3, Number.NaN] })
    const response = await askWith(scores, { documents: ['a', 'b', 'c'], user: 'u', timeout: 20 })
    expect(response.json()).toEqual({
      object: 'list',
      model: 'tiny-chat',
      data: [
        { object: 'search_result', document: 0, score: 12.346 },
        { object: 'search_result', document: 1, score: 0 },
        { object: 'search_result', document: 2, score: 0 },
      ],
    })
    expect(asked()).toEqual({
      task: 'score',
      query: 'the president',
      documents: ['a', 'b', 'c'],
    })
  })

  it('answers the documents of a file by their score, with their texts', async () => {
    const { data } = (await ask({ file: 'file-one' })).json()
    expect(data.map(({ document }: { document: number }) => document)).toEqual([1, 2, 3, 0])
    expect(data[0]).toEqual({
      object: 'search_result',
      document: 1,
      score: 13,
      text: LINES[1]?.text,
    })
  })

  it('adds metadata on request, and null if a line has none', async () => {
    const { data } = (await ask({ file: 'file-one', return_metadata: true })).json()
    expect(data.map(({ metadata }: { metadata: unknown }) => metadata)).toEqual([
      { place: 1 },
      null,
      null,
      'health',
    ])
  })

  it('scores only the documents of a file whose words suit the query best', async () => {
    const { data } = (await ask({ file: 'file-one', query: 'white house', max_rerank: 2 })).json()
    expect(asked().documents).toHaveLength(2)
    expect(data.map(({ document }: { document: number }) => document)).toEqual([1, 3])
  })

  const largeLine = (metadata: string) => `{"text":"school","metadata":${metadata}}`
  it.each([
    ['characters', Array.from({ length: 3 }, () => largeLine(`"${'x'.repeat(3_000_000)}"`))],
    ['values', Array.from({ length: 2 }, () => largeLine(`[0${',0'.repeat(300_000)}]`))],
  ])('refuses documents of a file that have more %s than a body may', async (_what, lines) => {
    await store.put('files/large', Buffer.from(lines.join('\n')))
    const fields = { query: 'school', file: 'file-large' }
    const { error } = (await ask(fields)).json()
    expect(error).toMatchObject({ param: 'file', code: 'documents_too_large' })
    expect((await ask({ ...fields, max_rerank: 1 })).statusCode).toBe(200)
  })

  it('names the place in the file of a document that is too long', async () => {
    const tooLong: Script = () => {
      throw failure.invalidRequest('however documents[0] resulted in 9 tokens', {
        param: 'documents[0]',
        code: 'context_length_exceeded',
      })
    }
    const fields = { file: 'file-one', query: 'school', max_rerank: 1 }
    const { error } = (await askWith(tooLong, fields)).json()
    expect(error).toMatchObject({ param: 'file', code: 'context_length_exceeded' })
    expect(error.message).toBe('however document 2 of the file resulted in 9 tokens')
  })

  it.each([
    ['file-none', 404, /^No such File object: file-none$/],
    ['file-batch', 400, /purpose 'search', but it was uploaded for 'batch'/],
    ['file-huge', 400, /too large to be searched/],
  ])('does not search %s', async (file, status, message) => {
    const response = await ask({ file })
    expect([response.statusCode, response.json().error.param]).toEqual([status, 'file'])
    expect(response.json().error.message).toMatch(message)
  })

  it('scores 200 documents', async () => {
    const documents = Array.from({ length: 200 }, () => 'a')
    expect((await ask({ documents, max_rerank: 5 })).json().data).toHaveLength(200)
  })

  it.each(['tiny-embed', 'only-chat', 'nope'])('does not search with %s', async (id) => {
    const response = await surface.post(`/v1/engines/${id}/search`, {
      query: 'a',
      documents: ['b'],
    })
    expect(response.statusCode).toBe(404)
  })
})

const EITHER = 'You should specify either `documents` or a `file`, but not both'
const REFUSALS: readonly Refusal[] = [
  [{}, 'documents', 'invalid_value', EITHER],
  [{ documents: null, file: null }, 'documents', 'invalid_value', EITHER],
  [{ documents: ['a'], file: 'file-one' }, 'file', 'invalid_value', EITHER],
  [
    { documents: Array.from({ length: 201 }, () => 'a') },
    'documents',
    'array_above_max_length',
    /maximum length 200, but got an array with length 201/,
  ],
  [{ documents: [] }, 'documents', 'empty_array', /./],
  [{ documents: [1] }, 'documents[0]', 'invalid_type', /./],
  [{ query: '' }, 'query', 'empty_string', /./],
  [{ file: 'f', max_rerank: 0 }, 'max_rerank', 'integer_below_min_value', /./],
  [{ file: 'f', return_metadata: 'yes' }, 'return_metadata', 'invalid_type', /./],
  [{ documents: ['a'], n: 1 }, 'n', 'unknown_parameter', /./],
]
itRefuses(URL, { query: 'a' }, REFUSALS)

describe('the keyword score', () => {
  it.each([
    ['The White House', ['white', 'house', 'white house']],
    ['Größe, 東京 42!', ['größe', '東京', '42', 'größe 東京', '東京 42']],
    ['of the', []],
  ])('reads %o as words and pairs', (text, terms) => {
    expect(termsOf(text)).toEqual(terms)
  })

  // By hand from the formula, k1 = 1.2 and b = 0.75: idf ln(1 + 1.5 / 1.5), lengths 1 and 3, mean
  // 2.
  it('is BM25', () => {
    const ranking = new KeywordRanking('cat')
    for (const text of ['cat', 'dog bird']) ranking.add(text)
    const saturation = 2.2 / (1 + 1.2 * (0.25 + 0.75 * 0.5))
    expect(ranking.scoreOf('cat')).toBeCloseTo(Math.log(2) * saturation, 12)
    expect(ranking.scoreOf('dog bird')).toBe(0)
  })

  it('prefers neighbouring words to scattered ones', () => {
    const [scattered, together] = ['a house that is big and white', 'a big old and white house']
    const ranking = new KeywordRanking('white house')
    for (const text of [scattered, together]) ranking.add(text)
    expect(ranking.scoreOf(together)).toBeGreaterThan(ranking.scoreOf(scattered))
  })

  it('chooses the best documents, the earlier of two alike', () => {
    const best = new BestDocuments(2)
    for (const [index, score] of [1, 3, 0, 3, 3].entries()) best.add(index, score)
    expect([...best.indices]).toEqual([1, 3])
  })
})

describe('the lines of a stream', () => {
  it.each([
    [['a\nb'], ['a', 'b']],
    [
      ['a', 'b\n', '\nc\n'],
      ['ab', '', 'c'],
    ],
    [[], []],
    [['a\u2028b\r\n'], ['a\u2028b\r']],
  ])('of %j are %j', async (chunks, lines) => {
    async function* source() {
      for (const chunk of chunks) yield Buffer.from(chunk)
    }
    expect(await Array.fromAsync(readLines(source(), 10))).toEqual(lines)
  })

  it('are refused when they are too long', async () => {
    async function* source() {
      yield Buffer.from('abc')
      yield Buffer.from('def\n')
    }
    await expect(Array.fromAsync(readLines(source(), 5))).rejects.toThrow(/longer than 5 bytes/)
  })
})
