import { readFileSync } from 'node:fs'
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { openClassifier } from '#workers/embedding/classifier.ts'
import { openEncoder } from '#workers/embedding/encoder.ts'
import { readLabels, sigmoid } from '#workers/embedding/labels.ts'
import { openReranker } from '#workers/embedding/reranker.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

// Recorded from sentence-transformers and transformers by test/fixtures/build-models.py.
const FIXTURES = join(import.meta.dirname, '../fixtures/models')
const FOREVER = new AbortController().signal
const runtime = openRuntime()

afterAll(() => runtime.close())

function readGolden<T>(family: string): T {
  return JSON.parse(readFileSync(join(FIXTURES, family, 'golden.json'), 'utf8'))
}

const FAMILIES = ['minilm', 'bge', 'e5', 'nomic', 'gte-modernbert', 'qwen3-embedding']

describe.each(FAMILIES)('an encoder of the %s family', async (family) => {
  const { texts, ids, embeddings } = readGolden<{
    texts: string[]
    ids: number[][]
    embeddings: number[][]
  }>(family)
  const encoder = await openEncoder({ runtime, folder: join(FIXTURES, family) })
  afterAll(() => encoder.close())

  it('reads texts as the reference does', async () => {
    expect(await Promise.all(texts.map((text) => encoder.encodeText(text)))).toEqual(ids)
  })

  it('gives the vectors of the reference, alone and in a batch', async () => {
    const together = await Promise.all(ids.map((tokenIds) => encoder.embed(tokenIds, FOREVER)))
    for (const [index, tokenIds] of ids.entries()) {
      const alone = await encoder.embed(tokenIds, FOREVER)
      const reference = Float32Array.from(embeddings[index] as number[])
      expect(cosine(alone, reference)).toBeGreaterThan(0.9999)
      expect(cosine(together[index] as Float32Array, alone)).toBeGreaterThan(0.999999)
      expect(length(alone)).toBeCloseTo(length(reference), 3)
    }
  })

  it('refuses a text beyond its context with both numbers', async () => {
    await expect(encoder.encodeText('word '.repeat(encoder.contextLength))).rejects.toMatchObject({
      code: 'context_length_exceeded',
      message: expect.stringContaining(`maximum context length is ${encoder.contextLength} tokens`),
    })
  })

  it('refuses a token id that its vocabulary does not have', () => {
    expect(() => encoder.checkTokenIds([1, 10_000_000])).toThrow(
      '10000000 is not a token id of this model (out of vocabulary)',
    )
  })
})

// Ids by the package tokenizers 0.23.3: `Tokenizer.from_file(…).enable_truncation(max_length)`.
describe('an encoder that cuts "the quick brown fox jumps over the lazy dog"', async () => {
  const text = 'the quick brown fox jumps over the lazy dog'
  const encoder = await openEncoder({ runtime, folder: join(FIXTURES, 'minilm') })
  afterAll(() => encoder.close())

  it.each([
    [2, [2, 3]],
    [3, [2, 79, 3]],
    [5, [2, 79, 219, 183, 3]],
    [8, [2, 79, 219, 183, 188, 190, 193, 3]],
    [64, [2, 79, 219, 183, 188, 190, 193, 79, 191, 186, 3]],
  ])('keeps both markers and the first tokens, %i in all', async (tokensMax, ids) => {
    expect(await encoder.encodeText(text, tokensMax)).toEqual(ids)
  })

  it('refuses to keep less than the markers or more than its context', async () => {
    const param = 'truncate_prompt_tokens'
    await expect(encoder.encodeText(text, 1)).rejects.toMatchObject({
      param,
      code: 'integer_below_min_value',
    })
    const code = 'integer_above_max_value'
    await expect(encoder.encodeText(text, 65)).rejects.toMatchObject({ param, code })
    expect(() => encoder.checkTokenIds([5], 65)).toThrow('Expected a value <= 64')
  })

  it('cuts token ids on the right, down to one', () => {
    expect(encoder.checkTokenIds([5, 6, 7], 2)).toEqual([5, 6])
    expect(encoder.checkTokenIds([5, 6, 7], 1)).toEqual([5])
    expect(encoder.checkTokenIds([5, 6, 7], 64)).toEqual([5, 6, 7])
    expect(encoder.checkTokenIds([5, 6, 7], 2, 'left')).toEqual([6, 7])
  })
})

describe('a cross-encoder', async () => {
  const golden = readGolden<{
    pairs: [string, string][]
    encoded: { ids: number[]; typeIds: number[] }[]
    logits: number[]
  }>('cross-encoder')
  const reranker = await openReranker({ runtime, folder: join(FIXTURES, 'cross-encoder') })
  afterAll(() => reranker.close())

  it('reads pairs as the reference does', () => {
    const encoded = golden.pairs.map(([query, document]) => reranker.encodePair(query, document))
    expect(encoded).toEqual(golden.encoded.map(({ ids, typeIds }) => ({ tokenIds: ids, typeIds })))
  })

  it('gives the scores of the reference', async () => {
    const pairs = golden.pairs.map(([query, document]) => reranker.encodePair(query, document))
    const logits = await Promise.all(pairs.map((pair) => reranker.logit(pair, FOREVER)))
    const scores = logits.map(sigmoid)
    for (const [index, logit] of golden.logits.entries()) {
      expect(scores[index]).toBeCloseTo(1 / (1 + Math.exp(-logit)), 4)
    }
  })

  it('cuts a long document but refuses a long query', () => {
    expect(() => reranker.encodePair('fox', 'fox '.repeat(10_000))).not.toThrow()
    expect(() => reranker.encodePair('fox '.repeat(10_000), 'fox')).toThrow('The query has')
  })

  it('cuts the beginning of a document, or refuses to cut it', () => {
    const end = 'The quick brown fox.'
    const short = reranker.encodePair('fox', end)
    const long = reranker.encodePair('fox', `${'dog '.repeat(10_000)}${end}`, {
      ...{ isCut: true, side: 'left' },
    })
    expect(long.tokenIds).toHaveLength(reranker.contextLength)
    const kept = short.tokenIds.length - reranker.encodePair('fox', '').tokenIds.length
    expect(long.tokenIds.slice(-kept - 1)).toEqual(short.tokenIds.slice(-kept - 1))
    expect(() => reranker.encodePair('fox', end, { isCut: false })).not.toThrow()
    expect(() => reranker.encodePair('fox', 'fox '.repeat(10_000), { isCut: false })).toThrow(
      /A document has more than the \d+ tokens/,
    )
  })
})

describe.each(['classifier', 'classifier-multi-label'])('a %s', async (family) => {
  const golden = readGolden<{ texts: string[]; probabilities: number[][] }>(family)
  const classifier = await openClassifier({ runtime, folder: join(FIXTURES, family) })
  afterAll(() => classifier.close())
  type Reading = Parameters<typeof classifier.read>[1]
  const read = (text: string, tokensMax?: Reading['tokensMax'], hasMarkers = true) =>
    classifier.read(text, { hasMarkers, ...(tokensMax !== undefined && { tokensMax }) })
  const classify = async (text: string) => {
    const parts = await read(text)
    const logits = parts.map((tokenIds) => classifier.logits({ tokenIds }, FOREVER))
    return (await Promise.all(logits)).map((row) => classifier.toProbabilities(row))
  }

  it('gives the probabilities of the reference', async () => {
    const rows = await Promise.all(golden.texts.map((text) => classify(text)))
    for (const [index, row] of golden.probabilities.entries()) {
      const [own = []] = rows[index] ?? []
      expect(own).toHaveLength(classifier.labels.length)
      for (const [label, value] of row.entries()) expect(own[label]).toBeCloseTo(value, 4)
    }
  })

  it('is not opened with a context that has room only for the markers', async () => {
    const options = { runtime, folder: join(FIXTURES, family), maxContextTokens: 2 }
    await expect(openClassifier(options)).rejects.toThrow('no room for text')
  })

  it('refuses a text beyond its context, cuts it, or reads it in parts', async () => {
    const text = 'fox '.repeat(3 * classifier.contextLength)
    await expect(classify(text)).rejects.toMatchObject({ code: 'context_length_exceeded' })
    const whole = await read(text, 'split')
    const [first] = await read(text, 'context')
    expect(whole.length).toBeGreaterThanOrEqual(4)
    expect(whole[0]).toEqual(first)
    const markers = 2 * whole.length
    const tokens = whole.reduce((sum, part) => sum + part.length, 0) - markers
    expect(tokens).toBe(3 * classifier.contextLength)
  })

  it('reads a text without markers, and token ids as they are', async () => {
    const [[first, ...others] = []] = await read('fox')
    expect(await read('fox', undefined, false)).toEqual([others.slice(0, -1)])
    expect(await read('fox fox', 2, false)).toEqual([[others[0], others[0]]])
    expect(await classifier.read([7, 8], { hasMarkers: true })).toEqual([[7, 8]])
    expect(first).toBeTypeOf('number')
    await expect(read(' ', undefined, false)).rejects.toMatchObject({ param: 'input' })
  })
})

// transformers 5.24: `config.save_pretrained` leaves out two labels without names.
it.each([
  [{}, ['LABEL_0', 'LABEL_1']],
  [{ num_labels: 3 }, ['LABEL_0', 'LABEL_1', 'LABEL_2']],
  [{ id2label: { 1: 'b', 0: 'a' } }, ['a', 'b']],
])('a classifier with %j in config.json has the labels %j', (config, labels) => {
  expect(readLabels(config).labels).toEqual(labels)
})

describe('a classifier that is refused when it is loaded', () => {
  it.each([
    [Object.fromEntries(Array.from({ length: 1001 }, (_, id) => [id, `l${id}`])), 'at most 1000'],
    [{ 0: 'a', 1: 'b'.repeat(201), 2: 'c' }, 'label 1 of config.json has more than 200 characters'],
    [{ 0: 'a' }, 'config.json names 1 labels'],
  ])('%#', async (id2label, message) => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-labels-'))
    await cp(join(FIXTURES, 'classifier'), folder, { recursive: true })
    const config = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8'))
    await writeFile(join(folder, 'config.json'), JSON.stringify({ ...config, id2label }))
    await expect(openClassifier({ runtime, folder })).rejects.toThrow(message)
    await rm(folder, { recursive: true })
  })
})

function cosine(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, i) => sum + value * (b[i] as number), 0) / (length(a) * length(b))
}

function length(vector: Float32Array): number {
  return Math.hypot(...vector)
}
