import { type Static, Type } from 'typebox'

import type { GenerateInput, TokenRules } from '#shared/contracts/completion.ts'

import { optionalBoolean, optionalString } from './field-schemas.ts'

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
