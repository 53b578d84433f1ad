import { isRecord } from '#shared/json.ts'
import { TOKENS_MAX } from '#workers/models/tokenizer-limits.ts'

import {
  modelOfRanks,
  type RankedTokens,
  readRankedTokens,
  readTekkenTokens,
} from './ranked-tokens.ts'
import { specialToken } from './special-tokens.ts'
import { byteLevel, bytesAfter, QWEN_PATTERN } from './steps.ts'
import type { TokenizerClass, TokenizerFolder, TokenizerParts } from './tokenizer-class.ts'

/** That of Qwen with up to three digits together. */
const GLM_PATTERN = QWEN_PATTERN.replace('\\p{N}|', '\\p{N}{1,3}|')
const KIMI_PATTERN = kimiPattern()
const KIMI_RESERVED = 256
const QWEN_EXTRA = 205
const END_OF_TEXT = '<|endoftext|>'

/** Classes whose files hold tokens of bytes with their ranks, as tiktoken reads them. */
export const RANK_CLASSES: readonly TokenizerClass[] = [
  {
    names: 'QWen',
    modelTypes: 'qwen',
    tokens: { eos_token: END_OF_TEXT, pad_token: END_OF_TEXT },
    async build(folder) {
      const extra = Array.from({ length: QWEN_EXTRA }, (_, index) => `<|extra_${index}|>`)
      return {
        ...ranked(await readRanks(folder, 'qwen.tiktoken'), QWEN_PATTERN),
        normalizer: { type: 'NFC' },
        additional: [END_OF_TEXT, '<|im_start|>', '<|im_end|>', ...extra],
      }
    },
  },
  {
    names: 'ChatGLM4',
    modelTypes: '',
    tokens: { eos_token: END_OF_TEXT, pad_token: END_OF_TEXT },
    build: async (folder) => ({
      ...ranked(await readRanks(folder, 'tokenizer.model'), GLM_PATTERN),
      template: ['[gMASK] <sop> A', '[gMASK] <sop> A B eos'],
    }),
  },
  {
    names: 'TikToken',
    modelTypes: 'kimi_k2 kimi_linear',
    tokens: { bos_token: '[BOS]', eos_token: '[EOS]', unk_token: '[UNK]', pad_token: '[PAD]' },
    async build(folder) {
      const tokens = await readRanks(folder, 'tiktoken.model')
      const named = folder.settings.added_tokens_decoder
      if (!isRecord(named)) throw new Error('tokenizer_config.json has no added_tokens_decoder')
      const ids = Array.from({ length: KIMI_RESERVED }, (_, index) => tokens.length + index)
      return {
        ...ranked(tokens, KIMI_PATTERN),
        found: ids
          .filter((id) => named[id] === undefined)
          .map((id) => found(`<|reserved_token_${id}|>`, id)),
      }
    },
  },
  {
    names: '',
    modelTypes: '',
    file: 'tekken.json',
    tokens: { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>', pad_token: '<pad>' },
    build: tekken,
  },
]

async function readRanks(folder: TokenizerFolder, name: string): Promise<RankedTokens> {
  try {
    return readRankedTokens(await folder.readText(name))
  } catch (error) {
    throw new Error(`${name}: ${(error as Error).message}`, { cause: error })
  }
}

function ranked(tokens: RankedTokens, pattern: string, first = 0): TokenizerParts {
  return {
    model: modelOfRanks(tokens, first),
    pre_tokenizer: bytesAfter(pattern, false),
    decoder: byteLevel(true),
  }
}

const found = (content: string, id: number) => ({ ...specialToken(content), id })

/** Files before version 11 leave out the special tokens, which are these. */
const TEKKEN_SPECIAL =
  '<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] ' +
  '[/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] ' +
  '[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]'

/** `tekken.json` of Mistral: special tokens come first, then the others by rank. */
async function tekken(folder: TokenizerFolder): Promise<TokenizerParts> {
  const { config, vocab, special_tokens: stated } = await folder.readJson('tekken.json')
  const settings = isRecord(config) ? config : {}
  if (typeof settings.pattern !== 'string') throw new Error('tekken.json has no config.pattern')
  const listed = Array.isArray(stated) ? stated.map(contentOf) : TEKKEN_SPECIAL.split(' ')
  const count = countOf(settings, 'default_num_special_tokens', listed.length)
  const size = countOf(settings, 'default_vocab_size', count + 1)
  const special = Array.from({ length: count }, (_, id) => listed[id] ?? `<SPECIAL_${id}>`)
  return {
    ...ranked(readTekkenTokens(vocab, size - count), settings.pattern, count),
    found: special.map(found),
    template: ['bos A', 'bos A B'],
  }
}

function contentOf(token: unknown, place: number): string {
  if (isRecord(token) && typeof token.token_str === 'string' && token.rank === place) {
    return token.token_str
  }
  throw new Error(`tekken.json: special token ${place} has no text or another rank`)
}

function countOf(settings: Readonly<Record<string, unknown>>, name: string, min: number): number {
  const value = settings[name]
  if (Number.isInteger(value) && Number(value) >= min && Number(value) <= TOKENS_MAX) {
    return Number(value)
  }
  throw new Error(`tekken.json: ${name} of config is not a whole number of at least ${min}`)
}

/** Words by case, without Chinese characters, whose runs are words of their own. */
function kimiPattern(): string {
  const without = (kinds: string) => `[${kinds}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]`
  const [upper, lower] = [without('\\p{Lu}\\p{Lt}'), without('\\p{Ll}')]
  const before = '[^\\r\\n\\p{L}\\p{N}]?'
  const contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
  const spaces = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'
  return [
    '[\\p{Han}]+',
    `${before}${upper}*${lower}+${contraction}`,
    `${before}${upper}+${lower}*${contraction}`,
    '\\p{N}{1,3}',
    ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*',
    spaces,
  ].join('|')
}
