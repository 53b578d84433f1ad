import { randomInt } from 'node:crypto'

import type { Static } from 'typebox'

import type {
  EndingRules,
  GenerateInput,
  SamplingParams,
  TokenRules,
} from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { mapOf, nullable } from '#shared/schemas.ts'

import {
  fixed,
  ineffective,
  invalidValue,
  optionalBoolean,
  optionalInteger,
  optionalNumber,
  optionalString,
} from './field-schemas.ts'

/** The most answers that one request may ask for. */
export const CANDIDATES_MAX = 128
/** The most stop strings of one request. */
export const STOP_STRINGS_MAX = 64
const STOP_LENGTH_MAX = 1024
const LOGIT_BIAS_MAX = 1024
const INT64_MAX = 2 ** 63

const STOP_TOKENS_MAX = 128

const STOP_STRING = Type.String({ minLength: 1, maxLength: STOP_LENGTH_MAX })
const TOKEN_ID = Type.Integer({ minimum: 0 })

/** Request fields of other servers of this API about the end of an answer. */
const ENDING_FIELDS = {
  ignore_eos: optionalBoolean({
    default: false,
    description: 'Ignore the end token of the model and generate until the maximum length.',
  }),
  min_tokens: optionalInteger({
    minimum: 0,
    default: 0,
    description:
      'The minimum length of the answer in tokens; stop strings have no effect before it.',
  }),
  stop_token_ids: Type.Optional(
    nullable(
      Type.Array(TOKEN_ID, {
        maxItems: STOP_TOKENS_MAX,
        description: 'Token ids that end generation; they are not part of the answer.',
      }),
    ),
  ),
  include_stop_str_in_output: optionalBoolean({
    default: false,
    description: 'Keep the matched `stop` string at the end of the answer.',
  }),
  skip_special_tokens: fixed([true]),
  spaces_between_special_tokens: fixed([true]),
}

const ALLOWED_MAX = 4096
const BAD_WORDS_MAX = 128
const WORD_LENGTH_MAX = 256
const SALT_LENGTH_MAX = 256
const PROMPT_LOGPROBS_MAX = 20

/**
 * Request fields of other servers of this API that restrict or return tokens, and restrict caches.
 */
const TOKEN_RULE_FIELDS = {
  allowed_token_ids: Type.Optional(
    nullable(
      Type.Array(TOKEN_ID, {
        minItems: 1,
        maxItems: ALLOWED_MAX,
        description:
          'The only token ids that the answer may contain; the answer may end after any of them.',
      }),
    ),
  ),
  bad_words: Type.Optional(
    nullable(
      Type.Array(Type.String({ minLength: 1, maxLength: WORD_LENGTH_MAX }), {
        maxItems: BAD_WORDS_MAX,
        description:
          'Words that the answer must not contain; they are matched by their usual tokens.',
      }),
    ),
  ),
  return_token_ids: optionalBoolean({
    default: false,
    description:
      'Return the token ids of the prompt and of each answer as well, including the token that ended it.',
  }),
  return_tokens_as_token_ids: optionalBoolean({
    default: false,
    description: 'Write the tokens in log-probabilities as `token_id:` followed by the id.',
  }),
  prompt_logprobs: optionalInteger({
    minimum: 0,
    maximum: PROMPT_LOGPROBS_MAX,
    description:
      'Return the log-probabilities of the prompt tokens, with this many alternatives each; not available with `stream`.',
  }),
  cache_salt: optionalString({
    minLength: 1,
    maxLength: SALT_LENGTH_MAX,
    description:
      'Requests share cached prompt prefixes only with requests that have the same salt.',
  }),
}

/** Fields of other servers, which would otherwise be refused as a misspelt `top_p` or `model`. */
export const FOREIGN_FIELDS = {
  top_a: ineffective({ type: ['number', 'null'] }, [0]),
  typ_p: ineffective({ type: ['number', 'null'] }, [1]),
  mode: ineffective({ type: ['string', 'null'] }),
  /** Proxies try these when the first model is busy. */
  models: ineffective({ type: ['array', 'null'] }),
}

/** The request fields that completions and chat completions share. */
export const SAMPLING_FIELDS = {
  temperature: optionalNumber({
    minimum: 0,
    maximum: 2,
    default: 1,
    description:
      'The sampling temperature; 0 always chooses the most likely token. Models may have other defaults, which `GET /v1/models` shows.',
  }),
  top_p: optionalNumber({
    minimum: 0,
    maximum: 1,
    default: 1,
    description: 'Consider only the most likely tokens whose probabilities add up to this value.',
  }),
  n: optionalInteger({
    minimum: 1,
    maximum: CANDIDATES_MAX,
    default: 1,
    description: 'The number of answers per prompt.',
  }),
  stream: optionalBoolean({ default: false, description: 'Answer with server-sent events.' }),
  stream_options: Type.Optional(
    nullable(
      Type.Object(
        {
          include_usage: optionalBoolean({
            description: 'Send the token counts in a final chunk.',
          }),
          include_obfuscation: optionalBoolean({
            description: 'Pad chunks with random characters, so that their sizes reveal nothing.',
          }),
          continuous_usage_stats: optionalBoolean({
            description: 'With `include_usage`: add the token counts so far to every chunk.',
          }),
        },
        { additionalProperties: false, description: 'Only with `stream`.' },
      ),
    ),
  ),
  stop: Type.Optional(
    Type.Union([nullable(STOP_STRING), Type.Array(STOP_STRING, { maxItems: STOP_STRINGS_MAX })], {
      description: `Up to ${STOP_STRINGS_MAX} strings that end generation; they are not part of the answer.`,
    }),
  ),
  presence_penalty: optionalNumber({
    minimum: -2,
    maximum: 2,
    default: 0,
    description: 'Subtracted once from the logits of tokens that already occur in the answer.',
  }),
  frequency_penalty: optionalNumber({
    minimum: -2,
    maximum: 2,
    default: 0,
    description:
      'Subtracted from the logits of tokens once for each time they already occur in the answer.',
  }),
  logit_bias: Type.Optional(
    nullable(
      mapOf(Type.Number({ minimum: -100, maximum: 100 }), {
        maxProperties: LOGIT_BIAS_MAX,
        propertyNames: { pattern: '^[0-9]{1,7}$' },
        description:
          'A map of token ids to the value that is added to their logits, from -100 (never) to 100.',
      }),
    ),
  ),
  seed: optionalInteger({
    minimum: -INT64_MAX,
    maximum: INT64_MAX,
    description: 'The seed of the random numbers, for reproducible sampling; random if absent.',
  }),
  // As long as `metadata.user_id` of messages, which proxies send here.
  user: optionalString({ maxLength: 512, description: 'Your identifier of the end user.' }),
  top_k: optionalInteger({
    minimum: -1,
    maximum: 1_000_000,
    description: 'Consider only this many of the most likely tokens; 0 or -1 means all.',
  }),
  min_p: optionalNumber({
    minimum: 0,
    maximum: 1,
    description:
      'Consider only tokens with at least this share of the probability of the most likely token.',
  }),
  repetition_penalty: optionalNumber({
    exclusiveMinimum: 0,
    maximum: 10,
    description: 'Reduces the probability of tokens that occurred before; 1 means no penalty.',
  }),
  repeat_penalty: optionalNumber({
    exclusiveMinimum: 0,
    maximum: 10,
    description: 'Alias of `repetition_penalty`.',
  }),
  ...ENDING_FIELDS,
  ...TOKEN_RULE_FIELDS,
  ...FOREIGN_FIELDS,
  timeout: optionalNumber({ description: 'Ignored; old clients send it for their own use.' }),
}

const SAMPLING_BODY = Type.Object(SAMPLING_FIELDS)
type SamplingBody = Static<typeof SAMPLING_BODY>

/**
 * The number of alternatives per prompt token to return; empty if prompt log-probabilities are not
 * requested. Throws for a stream.
 */
export function promptLogprobs(body: SamplingBody): Pick<GenerateInput, 'promptLogprobs'> {
  const { prompt_logprobs: count } = body
  if (count === null || count === undefined) return {}
  if (body.stream !== true) return { promptLogprobs: count }
  throw failure.invalidRequest(
    "The 'prompt_logprobs' parameter is not available when 'stream' is enabled.",
    { param: 'prompt_logprobs', code: 'invalid_value' },
  )
}

/** The sampling parameters, with every default filled in. */
export function samplingParams(body: SamplingBody): SamplingParams {
  return {
    temperature: body.temperature ?? 1,
    topP: body.top_p ?? 1,
    topK: Math.max(0, body.top_k ?? 0),
    minP: body.min_p ?? 0,
    presencePenalty: body.presence_penalty ?? 0,
    frequencyPenalty: body.frequency_penalty ?? 0,
    repetitionPenalty: body.repetition_penalty ?? body.repeat_penalty ?? 1,
    logitBias: body.logit_bias ?? {},
    seed: body.seed ?? randomInt(2 ** 32),
  }
}

/** The parameters that the request leaves out, for which a model may have defaults. */
export function unsetSampling(body: SamplingBody): Pick<GenerateInput, 'unsetSampling'> {
  const given = {
    temperature: body.temperature,
    topP: body.top_p,
    topK: body.top_k,
    minP: body.min_p,
    repetitionPenalty: body.repetition_penalty ?? body.repeat_penalty,
  }
  const names = Object.keys(given) as (keyof typeof given)[]
  const unset = names.filter((name) => given[name] === null || given[name] === undefined)
  return unset.length > 0 ? { unsetSampling: unset } : {}
}

/** The most tokens of an answer; null means all that fit. Throws for 0. */
export function maxTokensOf(value: number | null | undefined, param: string): number | null {
  if (value === null || value === undefined || value === -1) return null
  if (value > 0) return value
  throw failure.invalidRequest(
    `Invalid '${param}': integer below minimum value. Expected a value >= 1, but got ${value} instead.`,
    { param, code: 'integer_below_min_value' },
  )
}

/** The strings at which generation ends. */
export function stopStrings(stop: string | string[] | null | undefined): readonly string[] {
  if (stop === null || stop === undefined) return []
  return typeof stop === 'string' ? [stop] : stop
}

/** The options of a stream. */
export interface StreamChoice {
  readonly includesUsage: boolean
  readonly isObfuscated: boolean
  /** Every chunk carries the token counts so far. */
  readonly isUsageContinuous: boolean
}

/** The stream options. Throws when they are given for an answer that is not a stream. */
export function streamChoice(body: SamplingBody): StreamChoice {
  const options = body.stream_options
  if (options !== null && options !== undefined && body.stream !== true) {
    throw failure.invalidRequest(
      "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
      { param: 'stream_options', code: 'invalid_value' },
    )
  }
  return {
    includesUsage: options?.include_usage === true,
    isObfuscated: options?.include_obfuscation === true,
    isUsageContinuous: options?.include_usage === true && options.continuous_usage_stats === true,
  }
}

const ENDING_BODY = Type.Object(ENDING_FIELDS)

/**
 * Additional rules for the end of an answer; empty without such fields. Throws for a field that
 * contradicts a required format, which ends the answer when it is complete.
 */
export function endingRules(
  body: Static<typeof ENDING_BODY>,
  answer: { readonly maxTokens: number | null; readonly hasForm: boolean },
): { readonly ending?: EndingRules } {
  const minTokens = body.min_tokens ?? 0
  const stopTokenIds = body.stop_token_ids ?? []
  if (answer.maxTokens !== null && minTokens > answer.maxTokens) {
    throw invalidValue(
      'min_tokens',
      `${minTokens} is greater than the longest answer, which has ${answer.maxTokens} tokens.`,
    )
  }
  if (answer.hasForm) refuseWithForm({ ignore_eos: body.ignore_eos, min_tokens: minTokens })
  const rules: EndingRules = {
    ...(body.ignore_eos === true && { ignoresEndOfText: true }),
    ...(minTokens > 0 && { minTokens }),
    ...(stopTokenIds.length > 0 && { stopTokenIds }),
    ...(body.include_stop_str_in_output === true && { keepsStopString: true }),
  }
  return Object.keys(rules).length > 0 ? { ending: rules } : {}
}

function refuseWithForm(fields: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(fields)) {
    if (value !== true && !(typeof value === 'number' && value > 0)) continue
    throw invalidValue(
      name,
      "it cannot be given with a 'response_format' or 'tool_choice' that demands a form: the answer ends when the form is complete.",
    )
  }
}

const TOKEN_RULE_BODY = Type.Object(TOKEN_RULE_FIELDS)

/**
 * Restrictions of tokens and of caches, and whether token ids are returned; empty without such
 * fields.
 */
export function tokenRules(
  body: Static<typeof TOKEN_RULE_BODY>,
): Pick<GenerateInput, 'tokenRules' | 'cacheSalt' | 'returnsPromptTokens' | 'namesTokensById'> {
  const { allowed_token_ids: allowed, bad_words: words, cache_salt: salt } = body
  const rules: TokenRules = {
    ...(Array.isArray(allowed) && { allowedTokenIds: allowed }),
    ...(Array.isArray(words) && words.length > 0 && { badWords: words }),
  }
  return {
    ...(Object.keys(rules).length > 0 && { tokenRules: rules }),
    ...(typeof salt === 'string' && { cacheSalt: salt }),
    ...(body.return_token_ids === true && { returnsPromptTokens: true }),
    ...(body.return_tokens_as_token_ids === true && { namesTokensById: true }),
  }
}
