import { readFileSync } from 'node:fs'
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterEach, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import { loadTextModel } from '#workers/text/text-model.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'
import { readTokenizer } from '#workers/text/tokenizer-files/read-tokenizer.ts'

// Recorded from the classes of transformers by make-tokenizer-files.py, and from tiktoken and
// mistral-common by make-ranked-tokenizers.py (see `source` inside).
interface Golden {
  readonly texts: readonly string[]
  readonly cases: Readonly<Record<string, Case>>
}

interface Case {
  /** Files by the names that the class gives them, in test/fixtures/tokenizers. */
  readonly files: Readonly<Record<string, string>>
  /** Files of settings. */
  readonly contents: Readonly<Record<string, object>>
  /** The ids of every text, and of the second text with the sixteenth. */
  readonly ids: readonly (readonly number[])[]
  readonly pair: readonly number[]
}

const FIXTURES = join(import.meta.dirname, '../fixtures/tokenizers')
const [golden, ranked] = ['tokenizer-files', 'ranked-tokenizers'].map(
  (name) => JSON.parse(readFileSync(join(import.meta.dirname, `${name}.json`), 'utf8')) as Golden,
) as [Golden, Golden]

const folders: string[] = []
afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true })
})

async function writeFolder({ files, contents }: Pick<Case, 'files' | 'contents'>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tokenizer-'))
  folders.push(folder)
  for (const [own, shared] of Object.entries(files)) {
    await cp(join(FIXTURES, shared), join(folder, own))
  }
  for (const [own, content] of Object.entries(contents)) {
    await writeFile(join(folder, own), JSON.stringify(content))
  }
  return folder
}

async function load(made: Pick<Case, 'files' | 'contents'>) {
  const { json, config } = await readTokenizer(await writeFolder(made))
  return createTokenizer(json, config)
}

const all = [golden, ranked].flatMap(({ cases, texts }) =>
  Object.entries(cases).map(([name, made]) => [name, made, texts] as const),
)

describe.each(all)('the files of %s', (_name, made, texts) => {
  it('give the ids of the reference', async () => {
    const tokenizer = await load(made)
    const ids = texts.map((text) => tokenizer.encode(text, { addSpecialTokens: true }))
    expect(ids).toEqual(made.ids)
    const [first = '', second = ''] = [golden.texts[1], golden.texts[15]]
    expect(tokenizer.encodePair(first, second).tokenIds).toEqual(made.pair)
  })
})

describe('a folder without a tokenizer.json', () => {
  const bert = golden.cases.BERT as Case

  it('may state its class in config.json, or the type of its model alone', async () => {
    for (const config of [{ tokenizer_class: 'BertTokenizerFast' }, { model_type: 'bert' }]) {
      const tokenizer = await load({ files: bert.files, contents: { 'config.json': config } })
      expect(tokenizer.encode('Hello world', { addSpecialTokens: true })).toEqual(bert.ids[1])
    }
  })

  it('has the languages and the end of answers of its class', async () => {
    const folder = await writeFolder(golden.cases.Marian as Case)
    const { languages, endTokenIds, tokenizer } = await loadTextModel(folder, systemClock)
    expect(languages).toMatchObject({ place: 'source', codes: ['fra', 'deu'] })
    expect([...endTokenIds]).toEqual([tokenizer.findTokenId('</s>')])
  })

  it('may have another vocabulary of answers than of texts', async () => {
    const made = golden.cases['Marian with two vocabularies'] as Case
    const { tokenizer } = await loadTextModel(await writeFolder(made), systemClock)
    const ids = made.contents['target_vocab.json'] as Readonly<Record<string, number>>
    const word = Object.keys(ids).find((token) => /^▁\w/.test(token)) as string
    const bytes = tokenizer.pieces.bytesOf(ids[word] as number)
    expect(Buffer.from(bytes).toString()).toBe(word.replace('▁', ' '))
    expect(tokenizer.pieces.isSpecial(ids['<pad>'] as number)).toBe(true)
    expect(tokenizer.pieces.size).toBe(Object.keys(ids).length)
  })

  it('states the special tokens that its class has', async () => {
    const { config } = await readTokenizer(await writeFolder(golden.cases.T5 as Case))
    expect(config).toMatchObject({ eos_token: '</s>', pad_token: '<pad>' })
  })

  it.each<[string, Pick<Case, 'files' | 'contents'>]>([
    [
      'tokenizer.json is missing, and files of the class OddTokenizer are not read instead',
      {
        files: bert.files,
        contents: { 'tokenizer_config.json': { tokenizer_class: 'OddTokenizer' } },
      },
    ],
    [
      'no class of tokenizers is known for model_type "odd"',
      { files: {}, contents: { 'config.json': { model_type: 'odd' } } },
    ],
    [
      'words need the dictionary of MeCab',
      {
        files: bert.files,
        contents: {
          'tokenizer_config.json': {
            tokenizer_class: 'BertJapaneseTokenizer',
            word_tokenizer_type: 'mecab',
          },
        },
      },
    ],
    ['and so is vocab.txt', { files: {}, contents: bert.contents }],
    [
      'and so is merges.txt',
      {
        files: { 'vocab.json': 'gpt2-vocab.json' },
        contents: golden.cases['GPT-2']?.contents ?? {},
      },
    ],
    [
      'vocab.json: 1.5 is not a token id',
      {
        files: { 'merges.txt': 'gpt2-merges.txt' },
        contents: { ...golden.cases['GPT-2']?.contents, 'vocab.json': { a: 1.5 } },
      },
    ],
    [
      'vocab.json leaves out ids',
      {
        files: { 'source.spm': 'source.spm' },
        contents: { ...golden.cases.Marian?.contents, 'vocab.json': { '<unk>': 0, a: 900_000 } },
      },
    ],
    [
      'the two vocabularies have different ids of </s>',
      {
        files: golden.cases.Marian?.files ?? {},
        contents: {
          'tokenizer_config.json': { tokenizer_class: 'MarianTokenizer', separate_vocabs: true },
          'target_vocab.json': { '<unk>': 0, '</s>': 1 },
        },
      },
    ],
    [
      'spiece.model cannot be read as a SentencePiece model: a field is broken',
      { files: { 'spiece.model': 'vocab.txt' }, contents: golden.cases.T5?.contents ?? {} },
    ],
  ])('is refused with a sentence: %s', async (sentence, made) => {
    await expect(readTokenizer(await writeFolder(made))).rejects.toThrow(sentence)
  })
})
