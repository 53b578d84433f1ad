import { setImmediate } from 'node:timers/promises'

import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers'

import { checkTokenizerJson } from '#workers/models/tokenizer-limits.ts'

import { createContentEncoder } from './content-encoder.ts'
import type { ContentSpan } from './content-spans.ts'
import { encodeCooperatively, toTokenIds } from './cooperative-encode.ts'
import type { TokenizerJson, TokenPieces } from './detokenizer.ts'
import { buildTokenPieces } from './detokenizer.ts'
import { withKnownSteps } from './rare-steps.ts'
import { type ProbedTokenizer, probeTokenizer } from './tokenizer-probe.ts'
import { correctSteps } from './tokenizer-steps.ts'

/** Encodes text to token ids by the model's own rules. */
export interface Tokenizer {
  readonly pieces: TokenPieces
  encode(text: string, options: EncodeOptions): number[]
  /** The same for a long text, yielding to the event loop. */
  encodeCooperatively(text: string, options: EncodeOptions): Promise<number[]>
  /** Two texts with the tokenizer's own markers, and which of them each token belongs to. */
  encodePair(first: string, second: string): TextPair
  /** The id of a token by its spelling in the vocabulary. */
  findTokenId(token: string): number | undefined
}

/** How a text becomes token ids. */
interface EncodeOptions {
  /** Adds the tokenizer's own markers around the text. */
  readonly addSpecialTokens: boolean
  /** Parts in which control tokens are plain text; none when absent. */
  readonly content?: readonly ContentSpan[]
}

/** Options of a tokenizer beyond its own files. */
interface TokenizerOptions {
  /** Added tokens that structure a text although no file marks them as special. */
  readonly isTag?: (content: string) => boolean
  /** The tokens of answers, if they are not those of texts. */
  readonly answers?: object | undefined
}

/** Parts that a file may omit. */
const EMPTY = {
  normalizer: null,
  pre_tokenizer: null,
  post_processor: null,
  decoder: null,
  added_tokens: [],
}
/** `tokenizer.json` contains the effect of these settings as well, which other programs read. */
const OF_SLOW_TOKENIZERS = { remove_space: false, do_lowercase_and_remove_accent: false }

/** Two texts that are encoded together. */
interface TextPair {
  readonly tokenIds: number[]
  readonly typeIds: number[]
}

/** Creates a tokenizer from the parsed `tokenizer.json` and `tokenizer_config.json`. */
export function createTokenizer(
  tokenizerJson: object,
  tokenizerConfig: object,
  { isTag = () => false, answers }: TokenizerOptions = {},
): Tokenizer {
  const json = { ...EMPTY, ...tokenizerJson }
  checkTokenizerJson(json)
  const known = {
    ...json,
    normalizer: withKnownSteps(json.normalizer, 'normalizer'),
    pre_tokenizer: withKnownSteps(json.pre_tokenizer, 'pre_tokenizer'),
    // This module decodes texts itself, because it supports more decoders.
    decoder: null,
  }
  const library = new LibraryTokenizer(known, { ...tokenizerConfig, ...OF_SLOW_TOKENIZERS })
  correctSteps(json, library)
  probeTokenizer(json, library as unknown as ProbedTokenizer)
  const encoder = createContentEncoder(library, isTag)
  return {
    pieces: buildTokenPieces((answers ?? tokenizerJson) as TokenizerJson),
    encode(text, { addSpecialTokens, content = [] }) {
      if (text === '' && !addSpecialTokens) return []
      const parts = encoder.findParts(text, content)
      return parts === undefined
        ? library.encode(text, { add_special_tokens: addSpecialTokens }).ids
        : toTokenIds(library, parts, addSpecialTokens)
    },
    encodeCooperatively: (text, { addSpecialTokens, content = [] }) =>
      encodeCooperatively(library, text, addSpecialTokens, encoder.findParts(text, content)),
    encodePair(first, second) {
      const { ids, token_type_ids: typeIds } = library.encode(first, {
        text_pair: second,
        return_token_type_ids: true,
      })
      return { tokenIds: ids, typeIds: typeIds ?? ids.map(() => 0) }
    },
    findTokenId: (token) => library.token_to_id(token),
  }
}

/** The result of encoding a text of any size. */
type EncodeOutcome =
  | { readonly fits: true; readonly tokenIds: number[] }
  | { readonly fits: false; readonly estimatedTokens: number }

const SLICE_CHARS = 16_384 // about 20 ms of tokenizing on the event loop
const USUAL_CHARS_PER_TOKEN = 6
const LARGEST_CHARS_PER_TOKEN = 64

/**
 * Characters that this many tokens usually take, and at most; never less than are encoded in one
 * call.
 */
export function charsWithin(tokensMax: number): { readonly usual: number; readonly most: number } {
  return {
    usual: Math.max(SLICE_CHARS, tokensMax * USUAL_CHARS_PER_TOKEN),
    most: Math.max(SLICE_CHARS, tokensMax * LARGEST_CHARS_PER_TOKEN),
  }
}

/** A slice ends before a space, if one is within this many characters of its end. */
const SLICE_END_CHARS = 256

/** The slices of a text that are encoded one by one; words stay together. */
export function* slicesOf(text: string): Generator<string> {
  for (let start = 0; start < text.length || start === 0; ) {
    const most = start + SLICE_CHARS
    const space = text.slice(most - SLICE_END_CHARS, most).lastIndexOf(' ')
    // The second half of a surrogate pair belongs to the first.
    const whole = /[\udc00-\udfff]/.test(text.charAt(most)) ? most - 1 : most
    const end = most < text.length && space >= 0 ? most - SLICE_END_CHARS + space : whole
    yield text.slice(start, end)
    start = end
  }
}

/**
 * Encodes a text that may be far too long, about 1 µs and 300 bytes a character. A suspiciously
 * long text is first counted slice by slice, and abandoned as soon as it cannot fit; the count is
 * then an estimate. The event loop is free between the slices, and between words.
 */
export async function encodeWithin(
  tokenizer: Tokenizer,
  text: string,
  options: EncodeOptions & { readonly tokensMax: number },
): Promise<EncodeOutcome> {
  const { tokensMax } = options
  if (text.length > charsWithin(tokensMax).usual) {
    const estimatedTokens = await estimateOverflow(tokenizer, text, tokensMax)
    if (estimatedTokens !== undefined) return { fits: false, estimatedTokens }
  }
  const tokenIds =
    text.length > SLICE_CHARS
      ? await tokenizer.encodeCooperatively(text, options)
      : tokenizer.encode(text, options)
  return tokenIds.length <= tokensMax
    ? { fits: true, tokenIds }
    : { fits: false, estimatedTokens: tokenIds.length }
}

/** The estimated number of tokens when it certainly exceeds the limit, else undefined. */
async function estimateOverflow(
  tokenizer: Tokenizer,
  text: string,
  tokensMax: number,
): Promise<number | undefined> {
  // A word that is cut between two slices may count for a few tokens more.
  const certainlyTooMany = tokensMax * 1.05 + 64
  const { most: charsMax } = charsWithin(tokensMax)
  let counted = 0
  for (let start = 0; start < text.length; start += SLICE_CHARS) {
    const slice = text.slice(start, start + SLICE_CHARS)
    counted += tokenizer.encode(slice, { addSpecialTokens: false }).length
    const seenChars = start + slice.length
    if (counted > certainlyTooMany || seenChars > charsMax) {
      return Math.max(Math.round((counted * text.length) / seenChars), tokensMax + 1)
    }
    await setImmediate()
  }
  return undefined
}
