import { isRecord } from '#shared/json.ts'

import { createCharsmap } from './charsmap.ts'
import { normalizeNmt, spellBytes, splitByScript } from './rare-steps.ts'

/** A step of the library, whose methods may be replaced. */
type Step = Record<string, unknown>
type Json = Readonly<Record<string, unknown>>

/**
 * Corrects steps of the library to match the reference implementation of the format. They differ in
 * which characters count as spaces, digits or letters outside ASCII, in settings that the library
 * does not read, and in the table of SentencePiece, which it only approximates.
 */
export function correctSteps(
  { normalizer, pre_tokenizer: preTokenizer, model }: Json,
  live: { readonly normalizer: unknown; readonly pre_tokenizer: unknown; readonly model: unknown },
): void {
  correctVocabulary(model, live.model as ModelStep | null)
  correctModel(model, live.model as ModelStep | null)
  correctMerges(model, live.model as ModelStep | null)
  correctUnknown(model, live.model as ModelStep | null)
  forEachStep(normalizer, live.normalizer, 'normalizers', 'normalizers', correctNormalizer)
  forEachStep(preTokenizer, live.pre_tokenizer, 'pretokenizers', 'tokenizers', correctPreTokenizer)
}

/** The library's model, which is callable like its steps. */
interface ModelStep {
  fuse_unk?: boolean
  unk_token?: string
  unk_token_id?: number | undefined
  readonly tokens_to_ids: Map<string, number>
  readonly vocab: string[]
  /** A unigram model has the logarithms of probabilities, and the tokens that texts may have. */
  readonly scores?: number[]
  trie?: Trie
  unk_score?: number
  encode(words: readonly string[]): string[]
  _call?: (words: readonly string[]) => string[]
  /** A model of byte pairs adds two neighbours to the queue of its merges. */
  add_node?: (queue: { push(node: PairNode): void }, node: PairNode) => void
}

/** A part of a word, and the part after it. */
interface PairNode {
  readonly token: string
  readonly bias: number
  readonly next: PairNode
  score: number
}

interface Trie {
  extend(tokens: readonly string[]): void
}

const UNKNOWN_PENALTY = 10 // unigram models: below the least likely token

/**
 * Vocabularies beside a SentencePiece model (see `modelOfVocabulary`): tokens of probability 0 are
 * not found in texts, and pieces outside the vocabulary are, but become the unknown token.
 */
function correctVocabulary(json: unknown, model: ModelStep | null): void {
  if (model === null || !isRecord(json) || !Array.isArray(json.unmapped)) return
  const { tokens_to_ids: ids, vocab, scores, trie } = model
  const unmapped = json.unmapped as readonly (readonly [string, number])[]
  for (const [piece, score] of unmapped) {
    // The library has added the added tokens to the vocabulary, but not to the scores.
    const id = vocab.length
    ids.set(piece, id)
    vocab.push(piece)
    if (scores !== undefined) scores[id] = score
  }
  if (scores !== undefined && trie !== undefined) {
    const isFound = (_token: string, id: number) => (scores[id] ?? -Infinity) > -Infinity
    const least = scores.reduce((min, score) => (score > -Infinity ? Math.min(min, score) : min), 0)
    model.unk_score = least - UNKNOWN_PENALTY
    model.trie = new (trie.constructor as new () => Trie)()
    model.trie.extend(vocab.filter(isFound))
  }
}

/**
 * Consecutive unknown characters of a word are one token; the library takes quadratic time to join
 * them.
 */
function correctModel(json: unknown, model: ModelStep | null): void {
  if (model?.fuse_unk !== true) return
  const { unk_token_id: unknownId, tokens_to_ids: ids, scores } = model
  const unmapped = isRecord(json) && Array.isArray(json.unmapped) ? json.unmapped : undefined
  const outside = new Set(unmapped?.map(([piece]: readonly [string]) => piece))
  const isUnknown = (token: string | undefined): boolean => {
    if (token === undefined) return false
    const id = ids.get(token) ?? unknownId
    return id === unknownId || (scores !== undefined && scores[id as number] === -Infinity)
  }
  model._call = (words) =>
    words.flatMap((word) => {
      const tokens = model.encode([word])
      // Only their id is needed, which is that of the first.
      const fused = tokens.filter((token, at) => !(isUnknown(token) && isUnknown(tokens[at - 1])))
      if (unmapped === undefined) return fused
      const isReplaced = (token: string) => outside.has(token) || isUnknown(token)
      return fused.map((token) => (isReplaced(token) ? (model.unk_token as string) : token))
    })
}

/** Vocabularies whose merges follow from the ids of their tokens (see `modelOfRanks`). */
function correctMerges(json: unknown, model: ModelStep | null): void {
  if (model === null || !isRecord(json) || json.ranked !== true) return
  const ranks = new Map(Object.entries(json.vocab as Readonly<Record<string, number>>))
  model.add_node = (queue, node) => {
    const rank = ranks.get(node.token + node.next.token)
    if (rank === undefined) return
    // The bias is below 1, so that the first of equal parts in a word is joined first.
    node.score = rank + node.bias
    queue.push(node)
  }
}

/** The library reads the unknown token of a word vocabulary from another file. */
function correctUnknown(json: unknown, model: ModelStep | null): void {
  if (model === null || !isRecord(json) || json.type !== 'WordLevel') return
  if (typeof json.unk_token !== 'string') return
  model.unk_token = json.unk_token
  model.unk_token_id = model.tokens_to_ids.get(json.unk_token)
}

/** Visits each step of a pipeline, as JSON and as the library's object. */
export function forEachStep(
  json: unknown,
  live: unknown,
  jsonList: string,
  liveList: string,
  visit: (json: Json, live: Step) => void,
): void {
  // The library's steps are functions.
  if (!isRecord(json) || live === null || live === undefined) return
  const step = live as Step
  const steps = step[liveList]
  if (json.type !== 'Sequence' || !Array.isArray(steps)) {
    visit(json, step)
    return
  }
  const entries = Array.isArray(json[jsonList]) ? (json[jsonList] as readonly unknown[]) : []
  for (const [index, entry] of entries.entries()) {
    forEachStep(entry, steps[index], jsonList, liveList, visit)
  }
}

function correctNormalizer(json: Json, step: Step): void {
  const normalize = step.normalize as (text: string) => string
  const original = (text: string): string => normalize.call(step, text)
  switch (json.type) {
    case 'Precompiled':
      if (typeof json.precompiled_charsmap === 'string') {
        step.normalize = createCharsmap(json.precompiled_charsmap, json.longest === true)
      }
      return
    case 'Lowercase':
      step.normalize = lowercase
      return
    case 'Nmt':
      step.normalize = normalizeNmt
      return
    case 'ByteLevel':
      step.normalize = spellBytes
      return
    case 'BertNormalizer':
      if (json.lowercase !== false) step.normalize = (text: string) => original(plainSigma(text))
      return
    case 'Strip':
      step.normalize = (text: string) =>
        text
          .replace(json.strip_left === true ? /^\p{White_Space}+/u : /^/u, '')
          .replace(json.strip_right === true ? /\p{White_Space}+$/u : /$/u, '')
  }
}

/** Character by character, so that a sigma at the end of a word is not a special case. */
function lowercase(text: string): string {
  return plainSigma(text).toLowerCase()
}

function plainSigma(text: string): string {
  return text.replaceAll('Σ', 'σ')
}

const PUNCTUATION = String.raw`\p{P}\u0021-\u002F\u003A-\u0040\u005B-\u0060\u007B-\u007E`
const WORD = String.raw`\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}`

/** The cuts that behaviours make around a match. */
const BEHAVIOURS: Readonly<Record<string, (found: string, other: string) => string>> = {
  isolated: (found, other) => `${other}+|${found}`,
  contiguous: (found, other) => `${other}+|${found}+`,
  removed: (_found, other) => `${other}+`,
  mergedwithprevious: (found, other) => `${other}*${found}|${other}+`,
  mergedwithnext: (found, other) => `${found}${other}*|${other}+`,
}

function correctPreTokenizer(json: Json, step: Step): void {
  switch (json.type) {
    case 'ByteLevel':
      // GPT-2's pattern with the spaces of Unicode.
      step.pattern =
        /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu
      step.pre_tokenize_text = (text: string) => spellWords(text, step as unknown as ByteLevelStep)
      return
    case 'Whitespace':
      step.pre_tokenize_text = matcher(`[${WORD}]+|[^${WORD}\\p{White_Space}]+`)
      return
    case 'WhitespaceSplit':
      step.pre_tokenize_text = matcher('\\P{White_Space}+')
      return
    case 'Digits':
      step.pattern = new RegExp(`\\P{N}+|\\p{N}${json.individual_digits === true ? '' : '+'}`, 'gu')
      return
    case 'Punctuation':
      step.pattern = cutting(`[${PUNCTUATION}]`, `[^${PUNCTUATION}]`, json.behavior)
      return
    case 'BertPreTokenizer':
      step.pre_tokenize_text = matcher(`[^\\p{White_Space}${PUNCTUATION}]+|[${PUNCTUATION}]`)
      return
    case 'CharDelimiterSplit':
      step.pre_tokenize_text = (text: string) =>
        text.split(String(json.delimiter)).filter((piece) => piece !== '')
      return
    case 'UnicodeScripts':
      step.pre_tokenize_text = splitByScript
      return
    case 'Split':
      correctSplit(json, step)
      return
    case 'Metaspace':
      correctMetaspace(json, step)
  }
}

interface ByteLevelStep {
  readonly add_prefix_space: boolean
  readonly use_regex: boolean
  readonly pattern: RegExp
  /** The spelling of each byte. */
  readonly byte_encoder: Readonly<Record<number, string>>
}

/** The words of a text with their bytes spelled; the library would split every word for it. */
function spellWords(text: string, step: ByteLevelStep): string[] {
  const whole = step.add_prefix_space && !text.startsWith(' ') ? ` ${text}` : text
  const words: readonly string[] = step.use_regex ? (whole.match(step.pattern) ?? []) : [whole]
  const space = step.byte_encoder[0x20] as string
  return words.map((word) => {
    // These bytes are spelled as their own characters.
    if (/^ ?[!-~]*$/.test(word)) return word.startsWith(' ') ? space + word.slice(1) : word
    let spelled = ''
    for (const byte of Buffer.from(word)) spelled += step.byte_encoder[byte]
    return spelled
  })
}

/**
 * The library does not split between the words, and does not support the setting of older files.
 */
function correctMetaspace(json: Json, step: Step): void {
  if (json.prepend_scheme === undefined && json.add_prefix_space === false) {
    step.prepend_scheme = 'never'
  }
  if (json.split === false) return
  const mark = RegExp.escape(typeof json.replacement === 'string' ? json.replacement : '▁')
  const words = new RegExp(`${mark}(?:(?!${mark}).)*|(?:(?!${mark}).)+`, 'gsu')
  const mend = step.pre_tokenize_text as (text: string, options: unknown) => string[]
  step.pre_tokenize_text = (text: string, options: unknown) =>
    mend.call(step, text, options).flatMap((piece) => piece.match(words) ?? [])
}

/** The library splits everything as `isolated`, which is correct for most files. */
function correctSplit({ pattern, behavior, invert }: Json, step: Step): void {
  const name = behaviourName(behavior)
  const text = isRecord(pattern) ? pattern.String : undefined
  const sought = typeof text === 'string' ? new RegExp(RegExp.escape(text), 'gu') : step.pattern
  if ((name === 'isolated' && invert !== true) || !(sought instanceof RegExp)) return
  if (!Object.hasOwn(BEHAVIOURS, name)) throw unknownBehaviour(behavior)
  step.pre_tokenize_text = (whole: string) => {
    const pieces = findPieces(whole, sought).map(({ text: piece, isMatch }) => ({
      text: piece,
      isMatch: isMatch !== (invert === true),
    }))
    return joinPieces(pieces, name).filter((piece) => piece !== '')
  }
}

interface Piece {
  readonly text: string
  readonly isMatch: boolean
}

function findPieces(whole: string, sought: RegExp): Piece[] {
  const pieces: Piece[] = []
  let end = 0
  for (const { 0: text, index } of whole.matchAll(sought)) {
    if (index > end) pieces.push({ text: whole.slice(end, index), isMatch: false })
    if (text !== '') pieces.push({ text, isMatch: true })
    end = index + text.length
  }
  if (end < whole.length) pieces.push({ text: whole.slice(end), isMatch: false })
  return pieces
}

function joinPieces(pieces: readonly Piece[], behaviour: string): string[] {
  if (behaviour === 'isolated') return pieces.map(({ text }) => text)
  if (behaviour === 'removed') return pieces.filter((piece) => !piece.isMatch).map((p) => p.text)
  const isBackwards = behaviour === 'mergedwithnext'
  const joined: string[] = []
  let before: boolean | undefined
  for (const { text, isMatch } of isBackwards ? pieces.toReversed() : pieces) {
    const joins = behaviour === 'contiguous' ? isMatch === before : isMatch && before === false
    const last = joined.at(-1) ?? ''
    if (joins) joined[joined.length - 1] = isBackwards ? text + last : last + text
    else joined.push(text)
    before = isMatch
  }
  return isBackwards ? joined.toReversed() : joined
}

function behaviourName(behaviour: unknown): string {
  return String(behaviour ?? 'isolated')
    .toLowerCase()
    .replaceAll('_', '')
}

function unknownBehaviour(behaviour: unknown): Error {
  return new Error(`tokenizer.json: the behavior "${String(behaviour)}" is not known`)
}

function cutting(found: string, other: string, behaviour: unknown): RegExp {
  const name = behaviourName(behaviour)
  const cut = Object.hasOwn(BEHAVIOURS, name) ? BEHAVIOURS[name] : undefined
  if (cut === undefined) throw unknownBehaviour(behaviour)
  return new RegExp(cut(found, other), 'gu')
}

function matcher(pattern: string): (text: string) => string[] {
  const regExp = new RegExp(pattern, 'gu')
  return (text) => text.match(regExp) ?? []
}
