import { Tokenizer } from '@huggingface/tokenizers'

import { findJson, readJson, readModelText } from '#workers/models/folder-json.ts'
import { checkTokenizerJson } from '#workers/models/tokenizer-limits.ts'
import { createContentEncoder } from '#workers/text/content-encoder.ts'
import { contentOnly } from '#workers/text/content-spans.ts'
import { toTokenIds } from '#workers/text/cooperative-encode.ts'
import { type ProbedTokenizer, probeTokenizer } from '#workers/text/tokenizer-probe.ts'

/** Encodes prompts to exactly the text encoder's length. */
export interface ClipTokenizer {
  readonly length: number
  /** Longer prompts are cut, as in every pipeline of this layout. */
  encode(prompt: string): number[]
}

const LENGTH_UNKNOWN = 77
// CLIP's splitter: contractions, words, single digits, runs of anything else that is not space.
const PATTERN = "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"
// A prompt is cut at some tens of tokens anyway; this bounds the time for a hostile one.
const CHARS_PER_TOKEN_MAX = 64

/** Reads `vocab.json` and `merges.txt` of a folder, or its `tokenizer.json`. */
export async function readClipTokenizer(folder: string): Promise<ClipTokenizer> {
  const config = await readConfig(folder)
  const json = (await findJson(folder, 'tokenizer.json')) ?? (await joinFiles(folder, config))
  checkTokenizerJson(json)
  const tokenizer = new Tokenizer(json, config)
  probeTokenizer(json, tokenizer as unknown as ProbedTokenizer)
  const encoder = createContentEncoder(tokenizer, () => true)
  const get = (content: string) => {
    const id = tokenizer.token_to_id(content)
    if (id === undefined) throw new Error(`${folder}: the vocabulary has no ${content}`)
    return id
  }
  const { start, end, padding } = markersOf(config)
  const [startId, endId, paddingId] = [get(start), get(end), get(padding)]
  const stated = Number(config.model_max_length)
  const length = Number.isInteger(stated) && stated > 2 && stated < 1000 ? stated : LENGTH_UNKNOWN
  return {
    length,
    encode(prompt) {
      const { text, content } = contentOnly(prompt.slice(0, length * CHARS_PER_TOKEN_MAX))
      const parts = encoder.findParts(text, content)
      const words =
        parts === undefined
          ? tokenizer.encode(text, { add_special_tokens: false }).ids
          : toTokenIds(tokenizer, parts, false)
      const ids = [startId, ...words.slice(0, length - 2), endId]
      return [...ids, ...Array<number>(length - ids.length).fill(paddingId)]
    },
  }
}

/**
 * `tokenizer_config.json`. If it does not list its markers, as older ones do not, a separate file
 * takes precedence: for the second Stable Diffusions only that file states the padding token.
 */
async function readConfig(folder: string): Promise<Record<string, unknown>> {
  const config = await readJson(folder, 'tokenizer_config.json')
  if (config.added_tokens_decoder !== undefined) return config
  return { ...config, ...(await findJson(folder, 'special_tokens_map.json')) }
}

function markersOf(config: Record<string, unknown>) {
  const get = (name: string, fallback: string) => {
    const setting = config[name]
    const content = (setting as { content?: string } | null | undefined)?.content ?? setting
    return typeof content === 'string' ? content : fallback
  }
  return {
    start: get('bos_token', '<|startoftext|>'),
    end: get('eos_token', '<|endoftext|>'),
    padding: get('pad_token', '<|endoftext|>'),
  }
}

/** The equivalent of a `tokenizer.json`: CLIP's byte-level BPE with an end-of-word mark. */
async function joinFiles(
  folder: string,
  config: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  const vocab = await readJson(folder, 'vocab.json')
  const lines = (await readModelText(folder, 'merges.txt')).split('\n')
  const merges = lines.filter((line) => line !== '' && !line.startsWith('#version'))
  const markers = new Set(Object.values(markersOf(config)))
  const added = [...markers].filter((token) => Object.hasOwn(vocab, token))
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added.map((content) => ({
      id: vocab[content],
      content,
      special: true,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
    })),
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'NFC' },
        { type: 'Replace', pattern: { Regex: '\\s+' }, content: ' ' },
        { type: 'Lowercase' },
      ],
    },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: PATTERN }, behavior: 'Removed', invert: true },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: '<|endoftext|>',
      continuing_subword_prefix: '',
      end_of_word_suffix: '</w>',
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab,
      merges,
    },
  }
}
