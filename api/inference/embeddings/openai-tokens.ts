import { failure } from '#shared/errors.ts'

type Encoding = 'cl100k_base' | 'o200k_base'
/** The bytes of each token id: a string if they are valid text, else a list. */
type Ranks = readonly (string | readonly number[] | undefined)[]

// Clients of OpenAI cut long texts with its tokenizers and send the ids. The encoding follows from
// the name of the model, as in tiktoken.
const ENCODINGS: readonly (readonly [RegExp, Encoding])[] = [
  [/^text-embedding-(ada-002|3-)/, 'cl100k_base'],
  [/^gpt-(4o|4\.|5)|^chatgpt-4o|^o\d/, 'o200k_base'],
  [/^gpt-(4|3\.5)/, 'cl100k_base'],
]
// A part of a character has at most three bytes.
const INCOMPLETE = /^\uFFFD{1,3}|\uFFFD{1,3}$/g

/** The encoding of OpenAI's model of this name; undefined for other names. */
export function findEncoding(modelName: string): Encoding | undefined {
  return ENCODINGS.find(([names]) => names.test(modelName))?.[1]
}

/**
 * The texts of lists of token ids. An incomplete character at the beginning or end of a list is
 * dropped. Throws `invalidRequest` for an id that is not in the encoding.
 */
export async function decodeOpenAiTokens(
  encoding: Encoding,
  lists: readonly (readonly number[])[],
): Promise<readonly string[]> {
  const ranks = await loadRanks(encoding)
  return lists.map((tokenIds) => {
    const bytes = tokenIds.map((tokenId) => bytesOf(ranks, tokenId, encoding))
    const text = Buffer.concat(bytes).toString('utf8').replaceAll(INCOMPLETE, '')
    if (text !== '') return text
    throw invalidTokens('a list of token ids holds no complete character.')
  })
}

// Only the tables of the package are used, because its decoder keeps bytes of one call for the
// next. Loading them takes about 100 ms, so only processes that need them do so.
async function loadRanks(encoding: Encoding): Promise<Ranks> {
  const { default: ranks } =
    encoding === 'cl100k_base'
      ? await import('gpt-tokenizer/bpeRanks/cl100k_base')
      : await import('gpt-tokenizer/bpeRanks/o200k_base')
  return ranks
}

function bytesOf(ranks: Ranks, tokenId: number, encoding: Encoding): Buffer {
  const bytes = ranks[tokenId]
  if (bytes === undefined) throw invalidTokens(`the token id ${tokenId} is not in ${encoding}.`)
  return typeof bytes === 'string' ? Buffer.from(bytes) : Buffer.from(bytes)
}

function invalidTokens(reason: string): Error {
  return failure.invalidRequest(`Invalid 'input': ${reason}`, {
    param: 'input',
    code: 'invalid_value',
  })
}
