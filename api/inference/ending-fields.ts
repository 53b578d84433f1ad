import { type Static, Type } from 'typebox'

import type { EndingRules, GenerateInput, TokenRules } from '#shared/contracts/completion.ts'

import {
  fixed,
  invalidValue,
  optionalBoolean,
  optionalInteger,
  optionalString,
} from './field-schemas.ts'

const STOP_TOKENS_MAX = 128

/** Request fields of other servers of this API that say when an answer ends. */
export const ENDING_FIELDS = {
  ignore_eos: optionalBoolean({
    default: false,
    description: "Go on to the longest answer: the model's own end is a token like others.",
  }),
  min_tokens: optionalInteger({
    minimum: 0,
    default: 0,
    description: 'Shortest answer in tokens; stop strings before that are not looked for.',
  }),
  stop_token_ids: Type.Optional(
    Type.Unsafe<readonly number[] | null>({
      type: ['array', 'null'],
      maxItems: STOP_TOKENS_MAX,
      items: { type: 'integer', minimum: 0 },
      description: 'Token ids at which generation ends; they are not part of the answer.',
    }),
  ),
  include_stop_str_in_output: optionalBoolean({
    default: false,
    description: 'Keep the string of `stop` that was met at the end of the answer.',
  }),
  skip_special_tokens: fixed([true]),
  spaces_between_special_tokens: fixed([true]),
}

const ENDING_BODY = Type.Object(ENDING_FIELDS)

/**
 * When the answer ends, beyond the usual; empty without any such field. Throws where a field cannot be
 * kept: an answer of a required form ends when its form is complete.
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

const ALLOWED_MAX = 4096
const BAD_WORDS_MAX = 128
const WORD_LENGTH_MAX = 256
const SALT_LENGTH_MAX = 256

/** Request fields of other servers of this API that restrict or return tokens, and restrict caches. */
export const TOKEN_RULE_FIELDS = {
  allowed_token_ids: Type.Optional(
    Type.Unsafe<readonly number[] | null>({
      type: ['array', 'null'],
      minItems: 1,
      maxItems: ALLOWED_MAX,
      items: { type: 'integer', minimum: 0 },
      description: 'Token ids of which the answer consists; it may end at any place.',
    }),
  ),
  bad_words: Type.Optional(
    Type.Unsafe<readonly string[] | null>({
      type: ['array', 'null'],
      maxItems: BAD_WORDS_MAX,
      items: { type: 'string', minLength: 1, maxLength: WORD_LENGTH_MAX },
      description: 'Words that the answer does not contain, as their usual tokens.',
    }),
  ),
  return_token_ids: optionalBoolean({
    default: false,
    description: 'Return the token ids of the prompt and of each answer too.',
  }),
  cache_salt: optionalString({
    minLength: 1,
    maxLength: SALT_LENGTH_MAX,
    description: 'Only requests with the same salt share cached beginnings of prompts.',
  }),
}

const TOKEN_RULE_BODY = Type.Object(TOKEN_RULE_FIELDS)

/** Restrictions of tokens and of caches, and whether token ids are returned; empty without any such field. */
export function tokenRules(
  body: Static<typeof TOKEN_RULE_BODY>,
): Pick<GenerateInput, 'tokenRules' | 'cacheSalt' | 'returnsPromptTokens'> {
  const { allowed_token_ids: allowed, bad_words: words, cache_salt: salt } = body
  const rules: TokenRules = {
    ...(Array.isArray(allowed) && { allowedTokenIds: allowed }),
    ...(Array.isArray(words) && words.length > 0 && { badWords: words }),
  }
  return {
    ...(Object.keys(rules).length > 0 && { tokenRules: rules }),
    ...(typeof salt === 'string' && { cacheSalt: salt }),
    ...(body.return_token_ids === true && { returnsPromptTokens: true }),
  }
}
