import { isRecord } from '#shared/json.ts'
import { TOKENS_MAX } from '#workers/models/tokenizer-limits.ts'
import { BYTE_CHARACTERS } from '#workers/text/rare-steps.ts'

type Json = Readonly<Record<string, unknown>>

/** Tokens of bytes, spelled as in `tokenizer.json`, with their ranks. */
export type RankedTokens = readonly (readonly [text: string, rank: number])[]

/** Reads a file of tiktoken: a token in base64 and its rank on each line. */
export function readRankedTokens(text: string): RankedTokens {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  return checked(
    lines.map((line) => {
      const [, token, rank] = /^([\w+/]+=*) (\d{1,9})\r?$/.exec(line) ?? []
      if (token === undefined) throw new Error('it is not a file of tiktoken')
      return [spell(token), Number(rank)]
    }),
  )
}

/** Reads the first tokens of the `vocab` of `tekken.json`, whose ranks are their places. */
export function readTekkenTokens(vocabulary: unknown, count: number): RankedTokens {
  const list = Array.isArray(vocabulary) ? vocabulary.slice(0, count) : []
  if (list.length < count) throw new Error('tekken.json has too few tokens')
  return checked(
    list.map((token: unknown, rank) => {
      const bytes = isRecord(token) ? token.token_bytes : undefined
      if (typeof bytes !== 'string') throw new Error('tekken.json has a token without bytes')
      return [spell(bytes), rank]
    }),
  )
}

function checked(tokens: RankedTokens): RankedTokens {
  if (tokens.length > TOKENS_MAX) throw new Error(`it has more than ${TOKENS_MAX} tokens`)
  const texts = new Set(tokens.map(([text]) => text))
  const ranks = new Set(tokens.map(([, rank]) => rank))
  if (texts.size < tokens.length || ranks.size < tokens.length) {
    throw new Error('it has a token or a rank twice')
  }
  if (!BYTE_CHARACTERS.every((byte) => texts.has(byte))) {
    throw new Error('it lacks the token of a byte')
  }
  return tokens
}

function spell(base64: string): string {
  let text = ''
  for (const byte of Buffer.from(base64, 'base64')) text += BYTE_CHARACTERS[byte]
  return text
}

/**
 * The `model` of a `tokenizer.json` whose merges follow from its vocabulary: the adjacent parts
 * that make up the token of the lowest id are joined first. Ids are ranks after `first`.
 */
export function modelOfRanks(tokens: RankedTokens, first = 0): Json {
  return {
    type: 'BPE',
    unk_token: null,
    fuse_unk: false,
    byte_fallback: false,
    ignore_merges: true,
    vocab: Object.fromEntries(tokens.map(([text, rank]) => [text, first + rank])),
    merges: [],
    ranked: true,
  }
}
