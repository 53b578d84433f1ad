import { readFileSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { openEncoder } from '#workers/embedding/encoder.ts'
import { maxSim, type TokenMatrix } from '#workers/embedding/max-sim.ts'
import {
  type MultiVectorEncoder,
  openMultiVectorEncoder,
} from '#workers/embedding/multi-vector-encoder.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { writeSafetensors } from '#workers/tensor/safetensors.ts'

// Recorded from sentence-transformers and PyTorch by test/fixtures/build-models.py.
const FIXTURES = join(import.meta.dirname, '../fixtures/models')
const FOREVER = new AbortController().signal
const runtime = openRuntime()
const folders: string[] = []

afterAll(async () => {
  for (const folder of folders) await rm(folder, { recursive: true })
  await runtime.close()
})

type Files = Readonly<Record<string, unknown>>
type Matrix = readonly (readonly number[])[]

interface Golden {
  readonly queries: readonly string[]
  readonly documents: readonly string[]
  readonly variants: readonly {
    readonly name: string
    readonly files: Files
    readonly queries: readonly Matrix[]
    readonly documents: readonly Matrix[]
    readonly scores: Matrix
  }[]
}

function readGolden<T = Golden>(family: string): T {
  return JSON.parse(readFileSync(join(FIXTURES, family, 'golden.json'), 'utf8'))
}

/** A copy of a model with other files; an undefined one is taken away. */
async function copyWith(family: string, files: Files): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-multi-vector-'))
  folders.push(folder)
  await cp(join(FIXTURES, family), folder, { recursive: true })
  for (const [name, content] of Object.entries(files)) {
    const path = join(folder, name)
    await mkdir(dirname(path), { recursive: true })
    if (content === undefined) await rm(path)
    else await writeFile(path, content instanceof Uint8Array ? content : JSON.stringify(content))
  }
  return folder
}

/** Sentence-transformers stores its markers as special tokens, PyLate as words. */
async function markerFiles(files: Files): Promise<Files> {
  if (files['modules.json'] === undefined) return files
  const tokenizer = JSON.parse(await readFile(join(FIXTURES, 'pylate/tokenizer.json'), 'utf8'))
  for (const token of tokenizer.added_tokens) Object.assign(token, { special: true })
  return { ...files, 'tokenizer.json': tokenizer }
}

const rowsOf = ({ values, dimensions }: TokenMatrix): number[][] =>
  Array.from({ length: values.length / dimensions }, (_, row) => [
    ...values.subarray(row * dimensions, (row + 1) * dimensions),
  ])

/** The largest difference of any value; fails where the shapes differ. */
function differenceOf(found: Matrix, expected: Matrix): number {
  expect(found.map(({ length }) => length)).toEqual(expected.map(({ length }) => length))
  const each = found.flatMap((row, at) =>
    row.map((value, place) => Math.abs(value - (expected[at]?.[place] as number))),
  )
  return Math.max(...each)
}

const embedAll = (
  encoder: MultiVectorEncoder,
  texts: readonly string[],
  role: 'query' | 'passage',
): Promise<TokenMatrix[]> =>
  Promise.all(
    texts.map(async (text) => encoder.embed(await encoder.read(text, role, true), FOREVER)),
  )

// Golden numbers have five digits.
const TOLERANCE = 2e-5

describe.each(['colbert', 'pylate', 'modern-colbert'])('%s', (family) => {
  const golden = readGolden(family)

  it.each(golden.variants)('with $name gives the vectors of the reference', async (variant) => {
    const folder = await copyWith(family, await markerFiles(variant.files))
    const encoder = await openMultiVectorEncoder({ runtime, folder })
    const [queries, documents] = await Promise.all([
      embedAll(encoder, golden.queries, 'query'),
      embedAll(encoder, golden.documents, 'passage'),
    ])
    for (const [role, texts, together, expected] of [
      ['query', golden.queries, queries, variant.queries],
      ['passage', golden.documents, documents, variant.documents],
    ] as const) {
      for (const [at, text] of texts.entries()) {
        const [alone] = await embedAll(encoder, [text], role)
        for (const found of [alone, together[at]]) {
          const rows = rowsOf(found as TokenMatrix)
          expect(differenceOf(rows, expected[at] as Matrix)).toBeLessThan(TOLERANCE)
        }
      }
    }
    for (const [row, query] of queries.entries()) {
      for (const [at, document] of documents.entries()) {
        const score = await maxSim(query, document, async () => {})
        expect(score).toBeCloseTo(variant.scores[row]?.[at] as number, 4)
      }
    }
    await encoder.close()
  })
})

describe('the projection of ColBERT', () => {
  it('is read from the checkpoint if the graph has hidden states', async () => {
    const { queries, variants } = readGolden('colbert')
    const folder = join(FIXTURES, 'colbert')
    const encoder = await openMultiVectorEncoder({ runtime, folder, onnxFile: 'hidden' })
    const found = await embedAll(encoder, queries, 'query')
    for (const [at, matrix] of found.entries()) {
      const expected = variants[0]?.queries[at] as Matrix
      expect(differenceOf(rowsOf(matrix), expected)).toBeLessThan(TOLERANCE)
    }
    await encoder.close()
  })

  it('is left to a graph whose vectors have the dimensions of the last module', async () => {
    const modules = [{}, { type: 'pylate.models.Dense.Dense', path: '1_Dense' }]
    const { weights, config } = linearOf(4, 8)
    const folder = await copyWith('colbert', {
      'config_sentence_transformers.json': { model_type: 'ColBERT', query_prefix: '[unused0]' },
      'modules.json': modules,
      '1_Dense/config.json': config,
      '1_Dense/model.safetensors': weights,
    })
    const encoder = await openMultiVectorEncoder({ runtime, folder })
    expect(encoder.dimensions).toBe(8)
    await encoder.close()
  })
})

describe('the vectors of tokens of BGE-M3', () => {
  it('are those of all tokens but the first, of queries and documents alike', async () => {
    const golden = readGolden<{ texts: string[]; tokens: Matrix[] }>('bge-m3')
    const folder = join(FIXTURES, 'bge-m3')
    const encoder = await openMultiVectorEncoder({ runtime, folder })
    for (const role of ['query', 'passage'] as const) {
      const found = await embedAll(encoder, golden.texts, role)
      for (const [at, matrix] of found.entries()) {
        expect(differenceOf(rowsOf(matrix), golden.tokens[at] as Matrix)).toBeLessThan(TOLERANCE)
      }
    }
    await encoder.close()
  })
})

describe('a text', async () => {
  const folder = join(FIXTURES, 'pylate')
  const encoder = await openMultiVectorEncoder({ runtime, folder })
  afterAll(() => encoder.close())

  it('is cut to the length of its role, or refused', async () => {
    const long = 'fox '.repeat(100)
    const lengths = await Promise.all(
      (['query', 'passage'] as const).map(
        async (role) => (await encoder.read(long, role, true)).tokenIds.length,
      ),
    )
    expect([...lengths, encoder.contextLength]).toEqual([12, 24, 24])
    await expect(encoder.read(long, 'passage', false)).rejects.toMatchObject({
      param: 'input',
      code: 'context_length_exceeded',
    })
  })

  it('may be longer if the catalogue says so, up to the positions of the model', async () => {
    const longer = { runtime, folder, prompts: { passage: 'water: ' } }
    const opened = await openMultiVectorEncoder({ ...longer, documentLength: 40 })
    const most = await openMultiVectorEncoder({ ...longer, documentLength: 4000 })
    expect([opened.contextLength, most.contextLength]).toEqual([40, 64])
    const { tokenIds } = await opened.read('fox', 'passage', true)
    expect(tokenIds).toEqual((await encoder.read('water: fox', 'passage', true)).tokenIds)
    await Promise.all([opened.close(), most.close()])
  })
})

/** A Dense module of zeros, or of another value. */
function linearOf(inputs: number, outputs: number, value = 0) {
  const values = new Float32Array(inputs * outputs).fill(value)
  const tensor = { dims: [outputs, inputs], values }
  return {
    weights: writeSafetensors(new Map([['linear.weight', tensor]])),
    config: { in_features: inputs, out_features: outputs, bias: false },
  }
}

describe('a model of several vectors that is refused when it is loaded', () => {
  const settings = 'config_sentence_transformers.json'
  const pylate = JSON.parse(readFileSync(join(FIXTURES, 'pylate', settings), 'utf8')) as object
  const withSettings = (more: object): Files => ({ [settings]: { ...pylate, ...more } })
  const metadata = (more: object): Files => ({ 'artifact.metadata': { dim: 8, ...more } })
  const transformer = (expansion: object): Files => ({
    'sentence_bert_config.json': { query_expansion: expansion },
  })

  it.each<[string, string, Files]>([
    ['pylate', 'query_length is 2.5, expected a whole number', withSettings({ query_length: 2.5 })],
    ['pylate', 'query_length is NaN, expected', withSettings({ query_length: 'long' })],
    ['pylate', 'document_length is -1, expected', withSettings({ document_length: -1 })],
    ['pylate', 'queries have 100000 tokens, but', withSettings({ query_length: 100_000 })],
    ['pylate', 'query_length is 1000000000, exp', withSettings({ query_length: 1e9 })],
    ['pylate', 'a query of 3 tokens has no room', withSettings({ query_length: 3 })],
    ['pylate', 'a passage of 2 tokens has no room', withSettings({ document_length: 2 })],
    ['pylate', 'skiplist_words must be a list', withSettings({ skiplist_words: 'abc' })],
    ['pylate', 'skiplist_words must be a list', withSettings({ skiplist_words: [1] })],
    [
      'pylate',
      'skiplist_words must be a list of at most 10000',
      withSettings({ skiplist_words: Array(10_001).fill(',') }),
    ],
    ['pylate', 'has no token "[X] " to mark texts', withSettings({ query_prefix: '[X] ' })],
    ['pylate', 'no token [X] to fill', transformer({ strategy: 'min', length: 9, token: '[X]' })],
    ['pylate', 'query_expansion needs a length', transformer({ strategy: 'all', length: 9 })],
    ['pylate', 'query_expansion needs a length', transformer({ strategy: 'fixed' })],
    [
      'pylate',
      'the module HierarchicalPooling is not supported',
      { 'modules.json': [{}, { type: 'x.HierarchicalPooling', path: '1' }] },
    ],
    [
      'pylate',
      '3_Mask: keep_only_token_ids is not supported',
      {
        'modules.json': [{}, { type: 'x.MultiVectorMask', path: '3_Mask' }],
        '3_Mask/config.json': { keep_only_token_ids: [5] },
      },
    ],
    [
      'pylate',
      'has 32 values, but 1_Dense reads 16',
      {
        '1_Dense/config.json': linearOf(16, 24).config,
        '1_Dense/model.safetensors': linearOf(16, 24).weights,
      },
    ],
    [
      'pylate',
      'a layer of 16 values follows one of 24',
      {
        '2_Dense/config.json': linearOf(16, 8).config,
        '2_Dense/model.safetensors': linearOf(16, 8).weights,
      },
    ],
    [
      'pylate',
      'the weights of 2_Dense are not all finite',
      { '2_Dense/model.safetensors': linearOf(24, 8, Number.NaN).weights },
    ],
    ['pylate', 'model.safetensors is needed', { '1_Dense/model.safetensors': undefined }],
    ['colbert', 'the similarity l2 is not supported', metadata({ similarity: 'l2' })],
    ['colbert', 'query_maxlen is 0, expected', metadata({ query_maxlen: 0 })],
    [
      'colbert',
      'linear.weight is needed',
      { 'model.safetensors': undefined, ...metadata({ dim: 4 }) },
    ],
    ['colbert', 'must read 8 values, not 32', metadata({ dim: 4 })],
    ['minilm', 'not a model of several vectors: it needs', {}],
    ['splade', 'not a model of several vectors: it needs', {}],
  ])('%s: %s', async (family, message, files) => {
    const folder = await copyWith(family, files)
    await expect(openMultiVectorEncoder({ runtime, folder })).rejects.toThrow(message)
  })

  it('is not an encoder of one vector', async () => {
    const opening = openEncoder({ runtime, folder: join(FIXTURES, 'pylate') })
    await expect(opening).rejects.toThrow('needs "capabilities": ["multi-vector"] in models.json')
  })
})
