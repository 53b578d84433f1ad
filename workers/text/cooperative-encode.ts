import { setImmediate } from 'node:timers/promises'

import type { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers'

import type { EncodedPart } from './content-encoder.ts'

// Some 10 ms of tokenizing.
const WORDS_PER_TURN = 2000
const TOKENS_PER_TURN = 20_000

/** Parts of the library's tokenizer that are missing from its declarations. */
interface Inside {
  readonly model: Model
  readonly post_processor:
    | ((tokens: string[], pair: null, addSpecialTokens: boolean) => { readonly tokens: string[] })
    | null
  readonly added_tokens_map: ReadonlyMap<string, { readonly id: number }>
  /** Each is a token, or the model's output for the words between two added tokens. */
  encode_text(text: string): EncodedPart[]
}

interface Model {
  (words: readonly string[]): string[]
  _call?: (words: readonly string[]) => unknown
  readonly tokens_to_ids: ReadonlyMap<string, number>
  readonly unk_token_id?: number
}

/**
 * Encodes like the library's `encode`, but yields to the event loop after every few words: the
 * tokens of a word depend only on the word, and finding them takes nearly all of the time.
 */
export async function encodeCooperatively(
  library: LibraryTokenizer,
  text: string,
  addSpecialTokens: boolean,
  parts?: readonly EncodedPart[],
): Promise<number[]> {
  const inside = library as unknown as Inside
  const { model, post_processor: postProcess, added_tokens_map: added } = inside
  const tokens: string[] = []
  for (const part of parts ?? findWords(inside, text)) {
    if (typeof part === 'string') {
      tokens.push(part)
      continue
    }
    for (let at = 0; at < part.length; at += WORDS_PER_TURN) {
      for (const token of model(part.slice(at, at + WORDS_PER_TURN))) tokens.push(token)
      await setImmediate()
    }
  }
  const all = postProcess === null ? tokens : postProcess(tokens, null, addSpecialTokens).tokens
  const tokenIds: number[] = []
  for (const token of all) {
    const id = added.get(token)?.id ?? model.tokens_to_ids.get(token) ?? model.unk_token_id
    tokenIds.push(id as number)
    if (tokenIds.length % TOKENS_PER_TURN === 0) await setImmediate()
  }
  return tokenIds
}

/** The token ids of a text that has been split into words, in one call. */
export function toTokenIds(
  library: LibraryTokenizer,
  parts: readonly EncodedPart[],
  addSpecialTokens: boolean,
): number[] {
  const {
    model,
    post_processor: postProcess,
    added_tokens_map: added,
  } = library as unknown as Inside
  const tokens = parts.flatMap((part) => (typeof part === 'string' ? [part] : model(part)))
  const all = postProcess === null ? tokens : postProcess(tokens, null, addSpecialTokens).tokens
  return all.map(
    (token) =>
      (added.get(token)?.id ?? model.tokens_to_ids.get(token) ?? model.unk_token_id) as number,
  )
}

/** Added tokens as texts, and the text between them as lists of words. */
function findWords(inside: Inside, text: string): readonly EncodedPart[] {
  const { model } = inside
  const own = Object.getOwnPropertyDescriptor(model, '_call')
  // The library joins the model's outputs, so a nested list stays together.
  model._call = (words) => [words]
  try {
    return inside.encode_text(text)
  } finally {
    delete model._call
    if (own !== undefined) Object.defineProperty(model, '_call', own)
  }
}
