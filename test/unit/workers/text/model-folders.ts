import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import type { Tokenizer } from '#workers/text/tokenizer.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

const ROOT = join(import.meta.dirname, '../../../..')

/** A model folder of the test fixtures. */
export function fixtureFolder(name: string): string {
  return join(ROOT, 'test/fixtures/models', name)
}

/** For tokenizers whose folder states nothing. */
export const CONFIG = { clean_up_tokenization_spaces: false }

/** The tokenizer of a fixture. */
export function fixtureTokenizer(name: string): Tokenizer {
  return createTokenizer(
    readJson(join(fixtureFolder(name), 'tokenizer.json')),
    readJson(join(fixtureFolder(name), 'tokenizer_config.json')),
  )
}

/** A JSON file, parsed. */
export function readJson(path: string): object {
  return JSON.parse(readFileSync(path, 'utf8')) as object
}

/** A SentencePiece-like tokenizer with byte fallback, as Llama 2's is laid out. */
export const SENTENCE_PIECE = {
  version: '1.0',
  normalizer: {
    type: 'Sequence',
    normalizers: [
      { type: 'Prepend', prepend: '▁' },
      { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    ],
  },
  pre_tokenizer: null,
  post_processor: null,
  decoder: {
    type: 'Sequence',
    decoders: [
      { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
      { type: 'ByteFallback' },
      { type: 'Fuse' },
      { type: 'Strip', content: ' ', start: 1, stop: 0 },
    ],
  },
  added_tokens: [
    { id: 0, content: '<s>', special: true },
    { id: 1, content: '</s>', special: true },
  ],
  model: {
    type: 'BPE',
    byte_fallback: true,
    unk_token: '<unk>',
    vocab: Object.fromEntries(
      ['<s>', '</s>', '▁', 'a', 'b', '▁a', 'ab', '▁ab']
        .concat(
          Array.from(
            { length: 256 },
            (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`,
          ),
        )
        .map((token, id) => [token, id]),
    ),
    merges: ['▁ a', 'a b', '▁ ab'],
  },
} as const

/** A WordPiece tokenizer as BERT's is laid out. */
export const WORD_PIECE = {
  version: '1.0',
  normalizer: null,
  pre_tokenizer: { type: 'BertPreTokenizer' },
  post_processor: null,
  decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
  added_tokens: [{ id: 0, content: '[UNK]', special: true }],
  model: {
    type: 'WordPiece',
    unk_token: '[UNK]',
    continuing_subword_prefix: '##',
    vocab: Object.fromEntries(
      ['[UNK]', 'play', '##ing', 'child', '##ren', '.', ',', 'do', "n't", 'we'].map((t, id) => [
        t,
        id,
      ]),
    ),
  },
} as const

/** One of each family. */
export const TOKENIZERS = [
  {
    name: 'byte-level BPE',
    json: readJson(join(fixtureFolder('llama'), 'tokenizer.json')),
    config: readJson(join(fixtureFolder('llama'), 'tokenizer_config.json')),
  },
  { name: 'SentencePiece with byte fallback', json: SENTENCE_PIECE, config: CONFIG },
  { name: 'WordPiece', json: WORD_PIECE, config: CONFIG },
]
