import { isRecord } from '#shared/json.ts'

type Json = Readonly<Record<string, unknown>>

/** Rules for the tokens of a model's answers, besides how they are drawn. */
export interface GenerationRules {
  /** The token before every answer of an encoder-decoder. */
  readonly decoderStartTokenId?: number
  /** The first token of every answer: a language, or the start of a text. */
  readonly forcedStartTokenId?: number
  /** Sequences that no answer contains. */
  readonly bannedSequences: readonly (readonly number[])[]
  /** Tokens that no answer begins with. */
  readonly bannedStarts: readonly number[]
  /** Sequences of this many tokens occur at most once in an answer; 0 is off. */
  readonly repeatedSequenceLength: number
  /** Settings of `generation_config.json` that would change answers and are not followed. */
  readonly ignored?: readonly string[]
}

/** Settings that are not followed, and their values without an effect. */
const NOT_FOLLOWED: Readonly<Record<string, readonly unknown[]>> = {
  typical_p: [1],
  epsilon_cutoff: [0],
  eta_cutoff: [0],
  top_h: [1],
  penalty_alpha: [0],
  guidance_scale: [1],
  num_beams: [1],
  min_length: [0],
  min_new_tokens: [0],
  length_penalty: [1],
  encoder_repetition_penalty: [1],
  encoder_no_repeat_ngram_size: [0],
  exponential_decay_length_penalty: [],
  sequence_bias: [],
  force_words_ids: [],
  forced_decoder_ids: [],
  stop_strings: [],
  watermarking_config: [],
}

const SEQUENCES_MAX = 4096
const SEQUENCE_LENGTH_MAX = 64

/** Reads the rules of `generation_config.json`, with `config.json` as fallback. */
export function readGenerationRules(configs: readonly (Json | undefined)[]): GenerationRules {
  const places = configs.filter(isRecord)
  const find = (name: string): unknown =>
    places.map((place) => place[name]).find((value) => value !== undefined && value !== null)
  const token = (name: string): number | undefined => {
    const value = find(name)
    return isTokenNumber(value) ? value : undefined
  }
  // As in transformers, an encoder-decoder without a start token uses that of texts.
  const decoderStartTokenId = token('decoder_start_token_id') ?? token('bos_token_id')
  const forcedStartTokenId = token('forced_bos_token_id')
  const length = find('no_repeat_ngram_size')
  return {
    ...(decoderStartTokenId !== undefined && { decoderStartTokenId }),
    ...(forcedStartTokenId !== undefined && { forcedStartTokenId }),
    bannedSequences: [
      ...sequencesOf(find('bad_words_ids')),
      ...tokensOf(find('suppress_tokens')).map((id) => [id]),
    ],
    bannedStarts: tokensOf(find('begin_suppress_tokens')),
    repeatedSequenceLength: isTokenNumber(length) && length <= SEQUENCE_LENGTH_MAX ? length : 0,
    ignored: ignoredSettings(places[0] ?? {}, length),
  }
}

function ignoredSettings(generation: Json, length: unknown): readonly string[] {
  const ignored = Object.entries(NOT_FOLLOWED)
    .filter(([name, neutral]) => {
      const value = generation[name] ?? undefined
      return value !== undefined && !neutral.includes(value)
    })
    // The penalty belongs to the search with several beams.
    .filter(([name]) => name !== 'length_penalty' || Number(generation.num_beams) > 1)
    .map(([name]) => name)
  const isTooLong = typeof length === 'number' && length > SEQUENCE_LENGTH_MAX
  return isTooLong ? [...ignored, 'no_repeat_ngram_size'] : ignored
}

function sequencesOf(value: unknown): readonly (readonly number[])[] {
  if (!Array.isArray(value)) return []
  return value
    .slice(0, SEQUENCES_MAX)
    .filter(
      (sequence): sequence is number[] =>
        Array.isArray(sequence) &&
        sequence.length > 0 &&
        sequence.length <= SEQUENCE_LENGTH_MAX &&
        sequence.every(isTokenNumber),
    )
}

function tokensOf(value: unknown): readonly number[] {
  return Array.isArray(value) ? value.slice(0, SEQUENCES_MAX).filter(isTokenNumber) : []
}

function isTokenNumber(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0
}
