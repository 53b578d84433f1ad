import { expect, it } from 'vitest'

import { field, floatField, numberField } from '#workers/graph/wire.ts'
import { modelOfPieces, modelOfVocabulary } from '#workers/text/tokenizer-files/piece-models.ts'
import { readSentencePiece } from '#workers/text/tokenizer-files/sentencepiece.ts'

const CONTROL = 3
const piece = (text: string, score: number, kind = 1) =>
  field(1, [field(1, text), floatField(2, score), numberField(3, kind)])
const trainer = (algorithm: number) => field(2, [numberField(3, algorithm)])
const model = (...parts: readonly Uint8Array[]) => readSentencePiece(Buffer.concat(parts))

it('reads pieces, their kinds and the settings of the normalizer', async () => {
  const normalizer = field(3, [numberField(3, 0), numberField(4, 0)])
  expect(
    await model(piece('<unk>', 0, 2), piece('</s>', 0, CONTROL), piece('▁a', -0.5), normalizer),
  ).toEqual({
    pieces: [
      ['<unk>', 0],
      ['</s>', 0],
      ['▁a', -0.5],
    ],
    controls: new Set([1]),
    userDefined: new Set(),
    algorithm: 'unigram',
    unknownId: 0,
    unknownPiece: '<unk>',
    charsmap: undefined,
    addsPrefix: false,
    removesExtraSpaces: false,
  })
})

it.each<[string, readonly Uint8Array[]]>([
  ['it has no pieces', [trainer(1)]],
  ['only its algorithms unigram and BPE are supported', [piece('a', 0), trainer(3)]],
  ['it has a piece too long', [piece('a'.repeat(300), 0)]],
  ['it has a piece or a table too long', [piece('a'.repeat(3000), 0)]],
  ['the score of a piece is not a number', [piece('a', Number.NaN)]],
  ['it is not a SentencePiece model', [numberField(1, 7)]],
  ['it has too many fields', [piece('a', 0), ...Array.from({ length: 17 }, () => trainer(1))]],
  ['it has too many fields', [piece('a', 0), field(2, Buffer.alloc(200_002, '\x18\x01'))]],
  ['it has too many fields', [field(1, Buffer.alloc(34, '\x18\x01'))]],
])('is refused: %s', async (sentence, parts) => {
  await expect(model(...parts)).rejects.toThrow(sentence)
})

it('orders merges by their scores, then by the lengths of their parts', async () => {
  const pieces = ['<unk>', 'a', 'b', '😀', 'ab', 'ba', 'aba', 'a😀'].map((text, id) =>
    piece(text, text === 'ba' ? -1 : -id),
  )
  expect((await modelOfPieces(await model(...pieces, trainer(2)))).merges).toEqual([
    ['b', 'a'],
    ['a', 'b'],
    ['ab', 'a'],
    ['a', 'ba'],
    ['a', '😀'],
  ])
})

it('marks pieces outside a vocabulary, and tokens that no text has', async () => {
  const read = await model(piece('<unk>', 0, 2), piece('a', -1), piece('b', -2))
  expect(await modelOfVocabulary(read, ['<unk>', 'b', 'c'], '<unk>')).toMatchObject({
    unk_id: 0,
    vocab: [
      ['<unk>', -Infinity],
      ['b', -2],
      ['c', -Infinity],
    ],
    unmapped: [['a', -1]],
  })
  await expect(modelOfVocabulary(read, ['a'], '<unk>')).rejects.toThrow(
    'the vocabulary has no <unk>',
  )
})
