import { setImmediate } from 'node:timers/promises'

import type { Piece, SentencePieceModel } from './sentencepiece.ts'

type Json = Readonly<Record<string, unknown>>

/** How a class of tokenizers changes a SentencePiece model. */
export interface PieceOptions {
  /** The vocabulary, if it is not that of the model. */
  readonly pieces?: readonly Piece[]
  readonly unknownId?: number
  readonly byteFallback?: boolean
  /** Ids of pieces that also make up others, beside those of the model. */
  readonly parts?: readonly (readonly [string, number])[]
}

/** The `model` of a `tokenizer.json` that splits as a SentencePiece model does. */
export async function modelOfPieces(
  { pieces: own, algorithm, unknownId: ownUnknownId, unknownPiece }: SentencePieceModel,
  { pieces = own, unknownId = ownUnknownId, byteFallback = false, parts = [] }: PieceOptions = {},
): Promise<Json> {
  if (algorithm === 'unigram') {
    if (pieces[unknownId] === undefined) throw new Error('it has no piece for unknown characters')
    return { type: 'Unigram', unk_id: unknownId, vocab: pieces, byte_fallback: byteFallback }
  }
  return {
    type: 'BPE',
    unk_token: unknownPiece,
    fuse_unk: true,
    byte_fallback: byteFallback,
    vocab: Object.fromEntries(pieces.map(([text], id) => [text, id])),
    merges: await mergesOf(own, pieces, parts),
  }
}

/**
 * A vocabulary of its own beside a SentencePiece model, as Marian and M2M100 have: texts are split
 * into the model's pieces, and those that the vocabulary lacks are unknown.
 */
export async function modelOfVocabulary(
  model: SentencePieceModel,
  vocabulary: readonly string[],
  unknownToken: string,
): Promise<Json> {
  const unknownId = vocabulary.indexOf(unknownToken)
  if (unknownId < 0) throw new Error(`the vocabulary has no ${unknownToken}`)
  const known = new Set(vocabulary)
  const usable = model.pieces.filter(
    (_piece, id) => id !== model.unknownId && !model.controls.has(id),
  )
  const unmapped = usable.filter(([text]) => !known.has(text))
  const scores = new Map(usable)
  if (model.algorithm === 'unigram') {
    // A token of probability 0 is only written.
    const vocab = vocabulary.map((text) => [text, scores.get(text) ?? -Infinity])
    return { type: 'Unigram', unk_id: unknownId, vocab, byte_fallback: false, unmapped }
  }
  return {
    ...(await modelOfPieces(model)),
    unk_token: unknownToken,
    vocab: Object.fromEntries(vocabulary.map((text, id) => [text, id])),
    unmapped,
  }
}

const SPLITS_MAX = 16_000_000 // some 2,000,000 for the vocabulary of Gemma
/** The event loop serves other models after so many pieces. */
const PIECES_PER_TURN = 2000

/**
 * The merges of a vocabulary of pieces: each pair of pieces that makes up another one, those of
 * likelier pieces first.
 */
async function mergesOf(
  own: readonly Piece[],
  pieces: readonly Piece[],
  parts: readonly (readonly [string, number])[],
): Promise<readonly (readonly [string, string])[]> {
  const ids = new Map([...own.map(([text], id) => [text, id] as const), ...parts])
  const merges: Merge['parts'][] = []
  // Merges of one score, each piece's in the order of their ids.
  let equal: Merge[] = []
  const flush = (): void => {
    // As by Python's stable sort in reverse.
    equal.sort((a, b) => b.lengths[0] - a.lengths[0] || b.lengths[1] - a.lengths[1])
    for (const merge of equal) merges.push(merge.parts)
    equal = []
  }
  let splits = 0
  const likeliestFirst = [...new Map(pieces)].sort(([, a], [, b]) => b - a)
  for (const [index, [text, score]] of likeliestFirst.entries()) {
    splits += text.length
    if (splits > SPLITS_MAX) throw new Error('its pieces are too long')
    if (index % PIECES_PER_TURN === 0) await setImmediate()
    if (score !== likeliestFirst[index - 1]?.[1]) flush()
    const found = splitsOf(text, ids)
    if (found.length > 1) found.sort((a, b) => a.ids[0] - b.ids[0] || a.ids[1] - b.ids[1])
    equal.push(...found)
  }
  flush()
  return merges
}

interface Merge {
  readonly parts: readonly [string, string]
  readonly ids: readonly [number, number]
  /** In characters. */
  readonly lengths: readonly [number, number]
}

/** The pairs of pieces that make up a text. */
function splitsOf(text: string, ids: ReadonlyMap<string, number>): Merge[] {
  const found: { at: number; lengths: number; ids: [number, number] }[] = []
  let characters = 1
  for (let at = 1; at < text.length; at += 1) {
    // The second half of a surrogate pair belongs to the first.
    if ((text.charCodeAt(at) & 0xfc00) === 0xdc00) continue
    const left = ids.get(text.slice(0, at))
    const right = left === undefined ? undefined : ids.get(text.slice(at))
    if (left !== undefined && right !== undefined) {
      found.push({ at, lengths: characters, ids: [left, right] })
    }
    characters += 1
  }
  return found.map(({ at, lengths, ids: pair }) => ({
    parts: [text.slice(0, at), text.slice(at)],
    ids: pair,
    lengths: [lengths, characters - lengths],
  }))
}
