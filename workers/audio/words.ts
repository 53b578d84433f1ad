import { decodeTokens, type TokenPieces } from '#workers/text/detokenizer.ts'

/** A word and its tokens. */
export interface WordTokens {
  readonly text: string
  readonly tokenIds: readonly number[]
}

const REPLACEMENT = '\ufffd'
// The languages that are written without spaces (openai/whisper, tokenizer.py).
const UNSPACED: ReadonlySet<string> = new Set(['zh', 'ja', 'th', 'lo', 'my', 'yue'])
const PUNCTUATION = '!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~'

/** Splits tokens into words: at spaces and punctuation, or at each character without spaces. */
export function splitWords(
  pieces: TokenPieces,
  tokenIds: readonly number[],
  language: string,
): readonly WordTokens[] {
  const characters = splitCharacters(pieces, tokenIds)
  if (UNSPACED.has(language)) return characters
  const words: { text: string; tokenIds: number[] }[] = []
  for (const { text, tokenIds: ids } of characters) {
    const last = words.at(-1)
    if (last === undefined || text.startsWith(' ') || PUNCTUATION.includes(text.trim())) {
      words.push({ text, tokenIds: [...ids] })
    } else {
      last.text += text
      last.tokenIds.push(...ids)
    }
  }
  return words
}

/** The shortest runs of tokens that form complete characters. */
function splitCharacters(pieces: TokenPieces, tokenIds: readonly number[]): readonly WordTokens[] {
  const whole = decodeTokens(pieces, tokenIds, { continuesText: true })
  const found: WordTokens[] = []
  let pending: number[] = []
  let length = 0
  for (const tokenId of tokenIds) {
    pending.push(tokenId)
    const text = decodeTokens(pieces, pending, { continuesText: true })
    const at = text.indexOf(REPLACEMENT)
    // A replacement character that is also in the whole text does not come from an incomplete one.
    if (at >= 0 && whole[length + at] !== REPLACEMENT) continue
    found.push({ text, tokenIds: pending })
    length += text.length
    pending = []
  }
  return found
}
