import { isRecord } from '#shared/json.ts'

/** The largest published vocabularies have some 900,000 tokens, and 600,000 merges. */
export const TOKENS_MAX = 1_000_000
/** The largest published vocabularies, of speech, add some 65,000. */
export const ADDED_TOKENS_MAX = 100_000
const PATTERN_LENGTH_MAX = 4096
const STEPS_DEPTH_MAX = 16
const STEP_TEXT_LENGTH_MAX = 256 // of texts that a step inserts or searches; published ones have a few characters
const TOKEN_LENGTH_MAX = 1024 // the longest published ones are runs of some 500 spaces
const WORD_LENGTH_MAX = 256 // the word length of WordPiece, whose time grows with its cube; published files have 100

/**
 * Checks a `tokenizer.json` before it is used. Throws when its vocabulary or its steps would take
 * unlimited memory or time.
 */
export function checkTokenizerJson(json: Readonly<Record<string, unknown>>): void {
  const model = isRecord(json.model) ? json.model : {}
  const vocabulary = model.vocab
  if (!Array.isArray(vocabulary) && !isRecord(vocabulary)) {
    throw new Error('tokenizer.json has no vocabulary')
  }
  const added = Array.isArray(json.added_tokens) ? json.added_tokens : []
  checkCount(added, ADDED_TOKENS_MAX, 'added tokens')
  checkCount(Object.keys(vocabulary), TOKENS_MAX, 'tokens')
  const ids = Array.isArray(vocabulary)
    ? [vocabulary.length]
    : Object.values(vocabulary as Record<string, unknown>)
  const wrong = [...ids, ...added.map((token) => (isRecord(token) ? token.id : token))].find(
    (id) => !isVocabularyId(id),
  )
  if (wrong !== undefined) {
    throw new Error(`tokenizer.json: ${String(wrong).slice(0, 40)} is not a token id`)
  }
  checkModel(model, vocabulary)
  for (const step of ['normalizer', 'pre_tokenizer', 'decoder']) checkPatterns(json[step], step, 0)
}

function checkCount(list: readonly unknown[], max: number, noun: string): void {
  if (list.length <= max) return
  throw new Error(`tokenizer.json has ${list.length} ${noun}, at most ${max}`)
}

/** Whether a value of a tokenizer's file is a token id of a size that is accepted. */
export function isVocabularyId(id: unknown): boolean {
  return Number.isInteger(id) && (id as number) >= 0 && (id as number) <= TOKENS_MAX
}

function checkModel(model: Record<string, unknown>, vocabulary: object): void {
  const tokens = Array.isArray(vocabulary)
    ? vocabulary.map((entry) => (Array.isArray(entry) ? entry[0] : entry))
    : Object.keys(vocabulary)
  if (!tokens.every(isToken)) throw new Error('tokenizer.json: the vocabulary has a token too long')
  const { max_input_chars_per_word: wordLength = 100, merges = [] } = model
  if (!(Number(wordLength) <= WORD_LENGTH_MAX)) {
    throw new Error(
      `tokenizer.json: max_input_chars_per_word is ${String(wordLength)}, at most ${WORD_LENGTH_MAX}`,
    )
  }
  if (Array.isArray(merges)) checkCount(merges, TOKENS_MAX, 'merges')
  const isList = Array.isArray(merges) && (model.type !== 'BPE' || model.merges !== undefined)
  if (!isList || !merges.every(isMerge)) {
    throw new Error('tokenizer.json: the merges are not a list of pairs of tokens')
  }
}

function isToken(token: unknown): boolean {
  return typeof token === 'string' && token.length <= TOKEN_LENGTH_MAX
}

/** A pair of tokens, as a list or as a text with a space between them. */
function isMerge(merge: unknown): boolean {
  const parts: readonly unknown[] =
    typeof merge === 'string' ? merge.split(' ', 3) : Array.isArray(merge) ? merge : []
  return parts.length === 2 && parts.every((part) => isToken(part) && part !== '')
}

function checkPatterns(value: unknown, path: string, depth: number): void {
  if (typeof value !== 'object' || value === null) return
  if (depth > STEPS_DEPTH_MAX) throw new Error(`tokenizer.json: ${path} is nested too deeply`)
  for (const [name, inner] of Object.entries(value)) {
    if (name === 'Regex' && typeof inner === 'string') checkPattern(inner, path)
    else if (typeof inner === 'string') checkText(name, inner, path)
    else checkPatterns(inner, `${path}.${name}`, depth + 1)
  }
}

function checkText(name: string, text: string, path: string): void {
  if (text.length <= STEP_TEXT_LENGTH_MAX || name === 'precompiled_charsmap') return
  throw new Error(`tokenizer.json: ${name} of ${path} is too long`)
}

function checkPattern(pattern: string, path: string): void {
  if (pattern.length > PATTERN_LENGTH_MAX) {
    throw new Error(`tokenizer.json: the pattern of ${path} is too long`)
  }
  if (!mayBacktrackExponentially(pattern)) return
  const shown = pattern.slice(0, 80)
  throw new Error(
    `tokenizer.json: the pattern ${shown} of ${path} repeats a group that repeats or branches, ` +
      'which can take exponential time',
  )
}

interface Group {
  /** Whether it can match the same text in several ways. */
  isAmbiguous: boolean
}

/**
 * Whether a pattern repeats a group that contains a repetition or alternatives, such as `(a+)+` or
 * `(a|a)*`. No published tokenizer does.
 */
export function mayBacktrackExponentially(pattern: string): boolean {
  const open: Group[] = [{ isAmbiguous: false }]
  for (let at = 0; at < pattern.length; at += 1) {
    const group = open.at(-1) as Group
    const character = pattern[at] as string
    if (character === '\\') at += 1
    else if (character === '[') at = endOfClass(pattern, at)
    else if (character === '|') group.isAmbiguous = true
    else if (character === '(') open.push({ isAmbiguous: false })
    else if (character === ')' && open.length > 1) {
      open.pop()
      const outer = open.at(-1) as Group
      if (group.isAmbiguous && repeats(pattern, at + 1)) return true
      if (group.isAmbiguous) outer.isAmbiguous = true
    } else if (repeats(pattern, at) && '*+{'.includes(character)) group.isAmbiguous = true
  }
  return false
}

/** Whether a quantifier at this place allows more than one. */
function repeats(pattern: string, at: number): boolean {
  const [quantifier] = /^(?:[*+]|\{\d*,?\d*\})/.exec(pattern.slice(at, at + 24)) ?? []
  return quantifier !== undefined && !/^\{0?,?1?\}$|^\{[01],1\}$/.test(quantifier)
}

function endOfClass(pattern: string, start: number): number {
  for (let at = start + 1; at < pattern.length; at += 1) {
    if (pattern[at] === '\\') at += 1
    else if (pattern[at] === ']' && at > start + 1) return at
  }
  return pattern.length
}
