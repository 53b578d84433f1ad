import { setImmediate } from 'node:timers/promises'

import type { TruncationSide } from '#shared/contracts/embedding.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { contentOnly } from '#workers/text/content-spans.ts'
import { isTokenId, unknownTokenId } from '#workers/text/text-model.ts'
import { charsWithin, encodeWithin, slicesOf, type Tokenizer } from '#workers/text/tokenizer.ts'

import type { Markers } from './markers.ts'

/** The parts of a model that are needed to read an input. */
interface InputReader {
  readonly tokenizer: Tokenizer
  readonly markers: Markers
  readonly contextLength: number
  /** The request field of the texts, for messages; `input` if absent. */
  readonly param?: string
}

// The word at a cut may be tokenized differently than in the whole text. WordPiece splits words of
// up to 100 characters, in the worst case letter by letter.
const UNSURE_TOKENS = 128

/** Tokens of a text within the context. Throws `context_length_exceeded` with both numbers. */
export async function readText(
  { tokenizer, markers, contextLength, param }: InputReader,
  text: string,
): Promise<readonly number[]> {
  const { before, after } = markers
  const around = before.length + after.length
  const outcome = await encodeWithin(tokenizer, text, {
    addSpecialTokens: false,
    content: contentOnly(text).content,
    tokensMax: contextLength - around,
  })
  if (outcome.fits) return [...before, ...outcome.tokenIds, ...after]
  throw tooLong(contextLength, outcome.estimatedTokens + around, param)
}

/** The tokens of an input that are kept: the first ones, or the last ones for the left side. */
export function truncate(
  tokenIds: readonly number[],
  tokensMax: number,
  side: TruncationSide = 'right',
): readonly number[] {
  if (side === 'right') return tokenIds.slice(0, tokensMax)
  return tokenIds.slice(Math.max(tokenIds.length - tokensMax, 0))
}

/** The characters of a text that are kept, likewise. */
export function truncateText(text: string, chars: number, side: TruncationSide = 'right'): string {
  return side === 'right' ? text.slice(0, chars) : text.slice(Math.max(text.length - chars, 0))
}

/**
 * The tokens of a text that fit together with all markers, as the reference tokenizers truncate.
 * Only the necessary part of a long text is encoded.
 */
export async function readTextCut(
  { tokenizer, markers, contextLength }: InputReader,
  text: string,
  tokensMax: number,
  side?: TruncationSide,
): Promise<readonly number[]> {
  refuseAbove(contextLength, tokensMax)
  const { before, after } = markers
  const room = tokensMax - before.length - after.length
  if (room < 0) throw tooFew(before.length + after.length, tokensMax)
  const { usual, most: charsMax } = charsWithin(tokensMax)
  let chars = usual
  for (;;) {
    const { text: part, content } = contentOnly(truncateText(text, chars, side))
    const options = { addSpecialTokens: false, content }
    const tokenIds =
      chars > usual
        ? await tokenizer.encodeCooperatively(part, options)
        : tokenizer.encode(part, options)
    const isEnough = chars >= Math.min(text.length, charsMax)
    if (isEnough || tokenIds.length >= room + UNSURE_TOKENS) {
      return [...before, ...truncate(tokenIds, room, side), ...after]
    }
    chars = Math.min(chars * 2, charsMax)
    await setImmediate()
  }
}

/** The most parts of all texts of one request. */
export const PARTS_MAX = 2048

/**
 * The tokens of a text in parts that fit into the context, each with all markers. A long text is
 * encoded in slices, because a tokenizer finds the words of a text in one turn of the event loop.
 * Throws `context_length_exceeded` as soon as there are too many parts.
 */
export async function readTextSplit(
  { tokenizer, markers, contextLength }: InputReader,
  whole: string,
): Promise<readonly (readonly number[])[]> {
  const { before, after } = markers
  const room = contextLength - before.length - after.length
  const tokenIds: number[] = []
  for (const slice of slicesOf(whole)) {
    const { text, content } = contentOnly(slice)
    for (const id of tokenizer.encode(text, { addSpecialTokens: false, content })) tokenIds.push(id)
    if (tokenIds.length > room * PARTS_MAX) throw tooManyParts(contextLength)
    if (slice.length < whole.length) await setImmediate()
  }
  const count = Math.max(Math.ceil(tokenIds.length / room), 1)
  return Array.from({ length: count }, (_, part) => [
    ...before,
    ...tokenIds.slice(part * room, (part + 1) * room),
    ...after,
  ])
}

/** The error for texts that need more parts than a request may have. */
export function tooManyParts(contextLength: number): ServiceError {
  return failure.invalidRequest(
    `The texts need more than ${PARTS_MAX} parts of ${contextLength} tokens. Please send fewer or shorter ones.`,
    { param: 'input', code: 'context_length_exceeded' },
  )
}

/** Checks token ids of the model's own vocabulary, and truncates them if requested. */
export function readTokenIds(
  { tokenizer, contextLength, param }: InputReader,
  tokenIds: readonly number[],
  tokensMax: number | undefined,
  side?: TruncationSide,
): readonly number[] {
  if (tokensMax !== undefined) refuseAbove(contextLength, tokensMax)
  else if (tokenIds.length > contextLength) throw tooLong(contextLength, tokenIds.length, param)
  const vocabSize = tokenizer.pieces.size
  const wrong = tokenIds.find((id) => !isTokenId(id, vocabSize))
  if (wrong === undefined) return truncate(tokenIds, tokensMax ?? contextLength, side)
  throw unknownTokenId(param ?? 'input', String(wrong), vocabSize)
}

function tooLong(contextLength: number, tokens: number, param = 'input'): ServiceError {
  return failure.invalidRequest(
    `This model's maximum context length is ${contextLength} tokens, however you requested ${tokens} tokens (${tokens} in your prompt; 0 for the completion). Please reduce your prompt; or completion length.`,
    { param, code: 'context_length_exceeded' },
  )
}

/** Throws when more tokens are requested than the model reads. */
export function refuseAbove(contextLength: number, tokensMax: number): void {
  if (tokensMax <= contextLength) return
  throw failure.invalidRequest(
    `Invalid 'truncate_prompt_tokens': integer above maximum value. Expected a value <= ${contextLength}, the context of this model, but got ${tokensMax} instead.`,
    { param: 'truncate_prompt_tokens', code: 'integer_above_max_value' },
  )
}

function tooFew(markerCount: number, tokensMax: number): ServiceError {
  return failure.invalidRequest(
    `Invalid 'truncate_prompt_tokens': integer below minimum value. Expected a value >= ${markerCount}, the markers that this model puts around a text, but got ${tokensMax} instead.`,
    { param: 'truncate_prompt_tokens', code: 'integer_below_min_value' },
  )
}
