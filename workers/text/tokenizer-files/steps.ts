import type { SentencePieceModel } from './sentencepiece.ts'

/** A normalizer, pre-tokenizer or decoder of a `tokenizer.json`. */
export type Step = Readonly<Record<string, unknown>>

const MARK = '▁'

export const replace = (pattern: string, content: string): Step => ({
  type: 'Replace',
  pattern: { String: pattern },
  content,
})
const replaceAll = (pattern: string, content: string): Step => ({
  type: 'Replace',
  pattern: { Regex: pattern },
  content,
})

export const normalizers = (steps: readonly Step[]): Step => ({
  type: 'Sequence',
  normalizers: steps,
})
export const preTokenizers = (steps: readonly Step[]): Step => ({
  type: 'Sequence',
  pretokenizers: steps,
})
const charsmap = ({ charsmap: table }: SentencePieceModel, longest = false): readonly Step[] =>
  table === undefined ? [] : [{ type: 'Precompiled', precompiled_charsmap: table, longest }]

/** Marks spaces; `scheme` says where one is added before a text. */
export const metaspace = (scheme: 'always' | 'first' | 'never', split = true): Step => ({
  type: 'Metaspace',
  replacement: MARK,
  prepend_scheme: scheme,
  split,
})

/** Spells pieces, some of which are single bytes. */
export const pieceDecoder = (stripsFirst: boolean): Step => ({
  type: 'Sequence',
  decoders: [
    replace(MARK, ' '),
    { type: 'ByteFallback' },
    { type: 'Fuse' },
    ...(stripsFirst ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
  ],
})

/** As most classes normalize that split with SentencePiece. */
export const usualNormalizer = (model: SentencePieceModel): Step =>
  normalizers([
    ...charsmap(model),
    { type: 'Strip', strip_left: false, strip_right: true },
    replaceAll(' {2,}', MARK),
  ])

/** As SentencePiece itself normalizes. */
export const ownNormalizer = (model: SentencePieceModel): Step =>
  normalizers([
    ...charsmap(model, true),
    ...(model.removesExtraSpaces ? [replaceAll('^ +| +$', ''), replaceAll(' {2,}', ' ')] : []),
  ])

/** As SigLIP normalizes captions, without the punctuation of ASCII. */
export const captionNormalizer = (model: SentencePieceModel, lowercases: boolean): Step =>
  normalizers([
    replace(MARK, ' '),
    ...(lowercases ? [{ type: 'Lowercase' }] : []),
    replaceAll('[!-/:-@\\[-`{-~]', ''),
    replaceAll('\\s+', ' '),
    { type: 'Strip', strip_left: true, strip_right: true },
    ...charsmap(model, true),
    replaceAll('^ +| +$', ''),
    replaceAll(' {2,}', ' '),
  ])

/** As ALBERT, XLNet and RemBERT normalize. */
export const quotedNormalizer = (
  model: SentencePieceModel,
  { keepsAccents, lowercases }: { readonly keepsAccents: boolean; readonly lowercases: boolean },
): Step =>
  normalizers([
    replace('``', '"'),
    replace("''", '"'),
    ...(keepsAccents ? [] : [{ type: 'NFKD' }, { type: 'StripAccents' }]),
    ...(lowercases ? [{ type: 'Lowercase' }] : []),
    ...charsmap(model),
    replaceAll(' {2,}', ' '),
  ])

/** As DeBERTa-v2 normalizes. */
export const debertaNormalizer = (model: SentencePieceModel, lowercases: boolean): Step =>
  normalizers([
    ...(lowercases ? [{ type: 'Lowercase' }] : []),
    { type: 'Strip', strip_left: true, strip_right: true },
    ...charsmap(model),
    replaceAll(' {2,}', ' '),
  ])

/** Cuts a text by a pattern and spells its bytes. */
export const bytesAfter = (pattern: string, prefixesSpace: boolean, behavior = 'Isolated'): Step =>
  preTokenizers([
    { type: 'Split', pattern: { Regex: pattern }, behavior, invert: behavior === 'Removed' },
    { type: 'ByteLevel', add_prefix_space: prefixesSpace, trim_offsets: true, use_regex: false },
  ])

export const byteLevel = (prefixesSpace: boolean): Step => ({
  type: 'ByteLevel',
  add_prefix_space: prefixesSpace,
  trim_offsets: true,
  use_regex: true,
})

/** CLIP's: contractions, words, single digits, runs of anything else that is not space. */
export const CLIP_PATTERN = "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"
export const QWEN_PATTERN =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
export const clipNormalizer: Step = normalizers([
  { type: 'NFC' },
  replaceAll('\\s+', ' '),
  { type: 'Lowercase' },
])
