import { setImmediate } from 'node:timers/promises'

import { FORMS, fieldsOf } from '#workers/graph/wire.ts'
import { ADDED_TOKENS_MAX } from '#workers/models/tokenizer-limits.ts'

/** A token of a SentencePiece model and the logarithm of its probability. */
export type Piece = readonly [text: string, score: number]

/** The parts of a SentencePiece model that decide how texts are split. */
export interface SentencePieceModel {
  readonly pieces: readonly Piece[]
  /** Pieces that only a caller adds, such as `</s>`, by their ids. */
  readonly controls: ReadonlySet<number>
  /** Pieces that are found in a text before it is split. */
  readonly userDefined: ReadonlySet<number>
  readonly algorithm: 'unigram' | 'bpe'
  readonly unknownId: number
  readonly unknownPiece: string
  /** The table of the normalizer in base64, if there is one. */
  readonly charsmap: string | undefined
  readonly addsPrefix: boolean
  readonly removesExtraSpaces: boolean
}

const PIECES_MAX = 1_000_000 // the largest published models have some 260,000
const PIECE_LENGTH_MAX = 256 // trained with at most 16 characters, as a rule
const PIECE_LIMITS = { bytesMax: 2048, fieldsMax: 16 }
/** The largest published tables take some 300 KB; trainers list symbols of users one by one. */
const SPEC_LIMITS = { bytesMax: 4 << 20, fieldsMax: 100_000 }
const SPECS_MAX = 16
/** The event loop serves other models after so many pieces. */
const PIECES_PER_TURN = 20_000

/** Fields of `sentencepiece_model.proto`. */
const MODEL = { pieces: 1, trainer: 2, normalizer: 3 } as const
const PIECE = { text: 1, score: 2, kind: 3 } as const
const TRAINER = { algorithm: 3, unknownId: 40, unknownPiece: 45 } as const
const NORMALIZER = { charsmap: 2, addsPrefix: 3, removesExtraSpaces: 4 } as const
const KINDS = { control: 3, userDefined: 4 } as const
const ALGORITHMS: Readonly<Record<number, SentencePieceModel['algorithm']>> = {
  1: 'unigram',
  2: 'bpe',
}

type MessageLimits = typeof SPEC_LIMITS
type Values = ReadonlyMap<number, Value>
interface Value {
  readonly number: number
  readonly body: Uint8Array
}

/** Reads a SentencePiece model. Throws an error without the name of its file. */
export async function readSentencePiece(bytes: Uint8Array): Promise<SentencePieceModel> {
  const pieces: Piece[] = []
  const kinds: Record<number, Set<number>> = {
    [KINDS.control]: new Set(),
    [KINDS.userDefined]: new Set(),
  }
  let trainer: Values = new Map()
  let normalizer: Values = new Map()
  let specs = 0
  for (const { number, form, body } of fieldsOf(bytes)) {
    if (form !== FORMS.withLength) throw new Error('it is not a SentencePiece model')
    if (number !== MODEL.pieces) {
      specs += 1
      if (specs > SPECS_MAX) throw new Error('it has too many fields')
      if (number === MODEL.trainer) trainer = valuesOf(body, SPEC_LIMITS)
      if (number === MODEL.normalizer) normalizer = valuesOf(body, SPEC_LIMITS)
      continue
    }
    if (pieces.length === PIECES_MAX) throw new Error(`it has more than ${PIECES_MAX} pieces`)
    if (pieces.length % PIECES_PER_TURN === 0) await setImmediate()
    const values = valuesOf(body, PIECE_LIMITS)
    kinds[values.get(PIECE.kind)?.number ?? 0]?.add(pieces.length)
    pieces.push(pieceOf(values))
  }
  if (pieces.length === 0) throw new Error('it has no pieces')
  if (Object.values(kinds).some(({ size }) => size > ADDED_TOKENS_MAX)) {
    throw new Error(`it has more than ${ADDED_TOKENS_MAX} pieces that texts are searched for`)
  }
  const algorithm = ALGORITHMS[trainer.get(TRAINER.algorithm)?.number ?? 1]
  if (algorithm === undefined) throw new Error('only its algorithms unigram and BPE are supported')
  const charsmap = normalizer.get(NORMALIZER.charsmap)?.body
  return {
    pieces,
    controls: kinds[KINDS.control] as Set<number>,
    userDefined: kinds[KINDS.userDefined] as Set<number>,
    algorithm,
    unknownId: trainer.get(TRAINER.unknownId)?.number ?? 0,
    unknownPiece: textOf(trainer.get(TRAINER.unknownPiece)) ?? '<unk>',
    charsmap: charsmap?.length ? Buffer.from(charsmap).toString('base64') : undefined,
    addsPrefix: normalizer.get(NORMALIZER.addsPrefix)?.number !== 0,
    removesExtraSpaces: normalizer.get(NORMALIZER.removesExtraSpaces)?.number !== 0,
  }
}

function valuesOf(message: Uint8Array, { bytesMax, fieldsMax }: MessageLimits): Values {
  if (message.length > bytesMax) throw new Error('it has a piece or a table too long')
  const values = new Map<number, Value>()
  let fields = 0
  for (const { number, value, body } of fieldsOf(message)) {
    fields += 1
    if (fields > fieldsMax) throw new Error('it has too many fields')
    values.set(number, { number: Number(value), body })
  }
  return values
}

function pieceOf(values: Values): Piece {
  const text = textOf(values.get(PIECE.text)) ?? ''
  if (text.length > PIECE_LENGTH_MAX) throw new Error('it has a piece too long')
  const score = values.get(PIECE.score)?.body
  if (score === undefined) return [text, 0]
  const value = score.length === 4 ? Buffer.from(score).readFloatLE() : Number.NaN
  if (!Number.isFinite(value)) throw new Error('the score of a piece is not a number')
  return [text, value]
}

function textOf(value: Value | undefined): string | undefined {
  return value && Buffer.from(value.body).toString()
}
