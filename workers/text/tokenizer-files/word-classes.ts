import { BYTE_CHARACTERS } from '#workers/text/rare-steps.ts'

import { BERT_TEMPLATE, FAIRSEQ, specialToken, type UsualTokens } from './special-tokens.ts'
import {
  byteLevel,
  bytesAfter,
  CLIP_PATTERN,
  clipNormalizer,
  normalizers,
  QWEN_PATTERN,
  type Step,
} from './steps.ts'
import type { TokenizerClass, TokenizerFolder, TokenizerParts } from './tokenizer-class.ts'

type Json = Readonly<Record<string, unknown>>

const ROBERTA_TEMPLATE = ['cls A sep', 'cls A sep sep B sep'] as const
const GPT2: UsualTokens = {
  bos_token: '<|endoftext|>',
  eos_token: '<|endoftext|>',
  unk_token: '<|endoftext|>',
}
const BERT: UsualTokens = {
  unk_token: '[UNK]',
  sep_token: '[SEP]',
  pad_token: '[PAD]',
  cls_token: '[CLS]',
  mask_token: '[MASK]',
}
const BYTES: Step = {
  type: 'ByteLevel',
  add_prefix_space: true,
  trim_offsets: true,
  use_regex: true,
}

/** Classes whose files hold words, or parts of words and how they are joined. */
export const WORD_CLASSES: readonly TokenizerClass[] = [
  {
    names:
      'Bert DistilBert Electra MobileBert ConvBert SqueezeBert LayoutLM Lxmert RetriBert Realm ' +
      'DPRReader DPRQuestionEncoder DPRContextEncoder',
    modelTypes:
      'bert distilbert electra mobilebert convbert squeezebert layoutlm lxmert nomic_bert ' +
      'megatron-bert visual_bert vilt dpr ernie nezha',
    tokens: BERT,
    build: (folder) => wordPieces(folder, BERT_TEMPLATE),
  },
  {
    names: 'BertJapanese',
    modelTypes: '',
    tokens: BERT,
    build: japaneseCharacters,
  },
  {
    names: 'MPNet',
    modelTypes: 'mpnet',
    tokens: { ...FAIRSEQ, unk_token: '[UNK]' },
    build: (folder) => wordPieces(folder, ['cls A sep', 'cls A sep sep B:1 sep:1']),
  },
  {
    names: 'Funnel',
    modelTypes: 'funnel',
    tokens: {
      ...BERT,
      bos_token: '<s>',
      eos_token: '</s>',
      unk_token: '<unk>',
      sep_token: '<sep>',
      pad_token: '<pad>',
      cls_token: '<cls>',
      mask_token: '<mask>',
    },
    build: (folder) => wordPieces(folder, ['cls:2 A sep', 'cls:2 A sep B:1 sep:1']),
  },
  {
    names: 'GPT2 CodeGen',
    modelTypes:
      'gpt2 gpt_neo gptj gpt_bigcode opt codegen phi starcoder2 blip-2 granite granitemoe',
    tokens: GPT2,
    async build(folder) {
      const starts = folder.settings.add_bos_token === true
      return {
        ...(await bytePairs(folder)),
        ...(starts && { template: ['bos A', 'bos A B:1'] as const }),
      }
    },
  },
  {
    names: 'Roberta',
    modelTypes: 'roberta ibert data2vec-text roberta-prelayernorm mra',
    tokens: FAIRSEQ,
    build: (folder) => bytePairsWithin(folder, ROBERTA_TEMPLATE),
  },
  {
    names: 'Bart LED Longformer Mvp LayoutLMv3',
    modelTypes: 'bart led longformer mvp layoutlmv3',
    tokens: { ...FAIRSEQ, mask_token: { content: '<mask>', lstrip: true, normalized: true } },
    build: (folder) => bytePairsWithin(folder, ROBERTA_TEMPLATE),
  },
  {
    names: 'Blenderbot',
    modelTypes: 'blenderbot',
    tokens: FAIRSEQ,
    build: (folder) => bytePairsWithin(folder, ['A eos', 'A B']),
  },
  {
    names: 'Deberta',
    modelTypes: 'deberta',
    tokens: {
      ...BERT,
      bos_token: '[CLS]',
      eos_token: '[SEP]',
      mask_token: { content: '[MASK]', lstrip: true, normalized: true },
    },
    build: (folder) => bytePairsWithin(folder, BERT_TEMPLATE),
  },
  {
    names: 'Whisper',
    modelTypes: 'whisper',
    tokens: GPT2,
    build: (folder) => {
      const start = '<|startoftranscript|> <|notimestamps|>'
      return bytePairsWithin(folder, [`${start} A eos`, `${start} A B:1 eos:1`])
    },
  },
  {
    names: 'Qwen2',
    modelTypes: 'qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen3 qwen3_moe qwen3_vl internvl',
    tokens: { eos_token: '<|endoftext|>', unk_token: '<|endoftext|>', pad_token: '<|endoftext|>' },
    async build(folder) {
      return {
        ...(await bytePairs(folder)),
        normalizer: { type: 'NFC' },
        pre_tokenizer: bytesAfter(QWEN_PATTERN, folder.settings.add_prefix_space === true),
      }
    },
  },
  {
    names: 'CLIP',
    modelTypes: 'clip clip_text_model owlvit owlv2 groupvit',
    tokens: {
      bos_token: '<|startoftext|>',
      eos_token: '<|endoftext|>',
      unk_token: '<|endoftext|>',
      pad_token: '<|endoftext|>',
    },
    async build(folder) {
      const { model, decoder } = await bytePairs(folder)
      return {
        model: { ...model, unk_token: '<|endoftext|>', end_of_word_suffix: '</w>' },
        normalizer: clipNormalizer,
        pre_tokenizer: bytesAfter(CLIP_PATTERN, false, 'Removed'),
        decoder,
        template: ['bos A eos', 'bos A eos eos B eos'],
      }
    },
  },
  {
    names: 'Esm',
    modelTypes: 'esm',
    tokens: {
      eos_token: '<eos>',
      unk_token: '<unk>',
      pad_token: '<pad>',
      cls_token: '<cls>',
      mask_token: '<mask>',
    },
    build: residues,
  },
  {
    names: 'ByT5',
    modelTypes: '',
    tokens: Object.fromEntries(
      Object.entries({ pad_token: '<pad>', eos_token: '</s>', unk_token: '<unk>' }).map(
        ([role, content]) => [role, { content, lstrip: true, rstrip: true, normalized: false }],
      ),
    ),
    build: async ({ settings }) => bytes(settings),
  },
]

/** The model, pre-tokenizer and decoder of a byte-level BPE. */
async function bytePairs(folder: TokenizerFolder): Promise<TokenizerParts> {
  return {
    model: {
      type: 'BPE',
      unk_token: null,
      continuing_subword_prefix: '',
      end_of_word_suffix: '',
      fuse_unk: false,
      byte_fallback: false,
      vocab: await folder.readIds(),
      merges: await folder.readMerges(),
    },
    pre_tokenizer: byteLevel(folder.settings.add_prefix_space === true),
    decoder: BYTES,
  }
}

async function bytePairsWithin(
  folder: TokenizerFolder,
  template: readonly [string, string],
): Promise<TokenizerParts> {
  return { ...(await bytePairs(folder)), template }
}

async function wordPieces(
  folder: TokenizerFolder,
  template: readonly [string, string],
): Promise<TokenizerParts> {
  const { settings, roles } = folder
  const words = await folder.readWords()
  const accents = settings.strip_accents
  return {
    model: {
      type: 'WordPiece',
      unk_token: roles.get('unk_token')?.content,
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(words.map((word, id) => [word, id])),
    },
    normalizer: {
      type: 'BertNormalizer',
      clean_text: true,
      handle_chinese_chars: settings.tokenize_chinese_chars !== false,
      strip_accents: typeof accents === 'boolean' ? accents : null,
      lowercase: settings.do_lower_case !== false,
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    template,
  }
}

/** Spaces by the dictionaries of MeCab, and any other character by itself. */
const JAPANESE_CHARACTER = '[^ \\t\\n\\x0B]'

/** Characters of words that MeCab finds: where the words end makes no difference to them. */
async function japaneseCharacters(folder: TokenizerFolder): Promise<TokenizerParts> {
  const { settings, roles } = folder
  const { word_tokenizer_type: words = 'basic', subword_tokenizer_type: parts = 'wordpiece' } =
    settings
  if (words !== 'mecab' || parts !== 'character') {
    throw new Error(
      `word_tokenizer_type "${words}" with subword_tokenizer_type "${parts}" is not supported: ` +
        'only characters are read, because words need the dictionary of MeCab',
    )
  }
  return {
    model: wordsOf(await folder.readWords(), roles),
    normalizer: normalizers([
      { type: 'NFKC' },
      ...(settings.do_lower_case === true ? [{ type: 'Lowercase' }] : []),
    ]),
    pre_tokenizer: {
      type: 'Split',
      pattern: { Regex: JAPANESE_CHARACTER },
      behavior: 'Removed',
      invert: true,
    },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: false },
    template: BERT_TEMPLATE,
  }
}

function wordsOf(words: readonly string[], roles: TokenizerFolder['roles']): Json {
  return {
    type: 'WordLevel',
    unk_token: roles.get('unk_token')?.content,
    vocab: Object.fromEntries(words.map((word, id) => [word, id])),
  }
}

/** The residues of a protein, each of which is found in a text by itself. */
async function residues(folder: TokenizerFolder): Promise<TokenizerParts> {
  const words = await folder.readWords()
  return {
    model: wordsOf(words, folder.roles),
    pre_tokenizer: { type: 'WhitespaceSplit' },
    decoder: { type: 'Fuse' },
    found: words.map((word) => ({ ...specialToken(word, false), normalized: false })),
    template: ['cls A eos', 'cls A eos B eos'],
  }
}

const EXTRA_IDS = 125

/** ByT5 has no file: bytes follow three special tokens, and unused tokens follow the bytes. */
function bytes({ extra_ids: stated }: Json): TokenizerParts {
  const count = Number.isInteger(stated) && Number(stated) > 0 ? Number(stated) : EXTRA_IDS
  const words = ['<pad>', '</s>', '<unk>', ...BYTE_CHARACTERS]
  return {
    model: {
      type: 'BPE',
      unk_token: '<unk>',
      vocab: Object.fromEntries(words.map((word, id) => [word, id])),
      merges: [],
    },
    pre_tokenizer: byteLevel(false),
    decoder: BYTES,
    additional: Array.from(
      { length: Math.min(count, EXTRA_IDS) },
      (_, index) => `<extra_id_${index}>`,
    ),
    template: ['A eos', 'A eos B eos'],
  }
}
