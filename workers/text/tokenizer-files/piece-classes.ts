import { LANGUAGES_OF } from './languages-of-models.ts'
import { modelOfPieces, modelOfVocabulary, type PieceOptions } from './piece-models.ts'
import type { Piece, SentencePieceModel } from './sentencepiece.ts'
import {
  BERT_TEMPLATE,
  FAIRSEQ,
  FAIRSEQ_PLAIN,
  specialToken,
  type UsualTokens,
} from './special-tokens.ts'
import {
  captionNormalizer,
  debertaNormalizer,
  metaspace,
  normalizers,
  ownNormalizer,
  pieceDecoder,
  preTokenizers,
  quotedNormalizer,
  replace,
  type Step,
  usualNormalizer,
} from './steps.ts'
import type { TokenizerClass, TokenizerFolder, TokenizerParts } from './tokenizer-class.ts'

type Json = Readonly<Record<string, unknown>>

/** The parts in which a class differs from most that read a SentencePiece model. */
type PieceRules = PieceOptions & Partial<Omit<TokenizerParts, 'model'>>

type Rules = (model: SentencePieceModel, folder: TokenizerFolder) => PieceRules

const FAIRSEQ_LATER: UsualTokens = {
  ...FAIRSEQ,
  mask_token: { content: '<mask>', lstrip: true, normalized: true },
}
const T5: UsualTokens = { eos_token: '</s>', unk_token: '<unk>', pad_token: '<pad>' }
const ALBERT: UsualTokens = {
  bos_token: '[CLS]',
  eos_token: '[SEP]',
  unk_token: '<unk>',
  sep_token: '[SEP]',
  pad_token: '<pad>',
  cls_token: '[CLS]',
  mask_token: { content: '[MASK]', lstrip: true, normalized: false },
}
const BIG_BIRD: UsualTokens = {
  ...ALBERT,
  bos_token: '<s>',
  eos_token: '</s>',
  mask_token: { content: '[MASK]', lstrip: true, normalized: true },
}
const DEBERTA: UsualTokens = {
  ...ALBERT,
  unk_token: '[UNK]',
  pad_token: '[PAD]',
  mask_token: '[MASK]',
}
const XLNET: UsualTokens = {
  ...FAIRSEQ,
  sep_token: '<sep>',
  cls_token: '<cls>',
}
const PEGASUS: UsualTokens = { ...T5, mask_token: '<mask_2>' }
const LLAMA: UsualTokens = { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>' }
const GEMMA: UsualTokens = {
  bos_token: '<bos>',
  eos_token: '<eos>',
  unk_token: '<unk>',
  pad_token: '<pad>',
}
const EXTRA_IDS_MAX = 1000

/** Classes whose files hold a SentencePiece model. */
export const PIECE_CLASSES: readonly TokenizerClass[] = [
  row('T5 MT5', 't5 mt5 umt5 longt5 switch_transformers pix2struct', T5, (model, { settings }) => {
    const count = countOf(settings.extra_ids, 100, EXTRA_IDS_MAX)
    const extra = Array.from({ length: count }, (_, index) => `<extra_id_${index}>`)
    return {
      pieces: [...model.pieces, ...unscored(extra.toReversed())],
      additional: extra,
      template: ['A </s>', 'A </s> B </s>'],
    }
  }),
  row('XLMRoberta LayoutXLM', 'xlm-roberta xlm-roberta-xl xmod', FAIRSEQ, (model) => ({
    ...fairseq(model, ['<mask>']),
    template: ['<s> A </s>', '<s> A </s> </s> B </s>'],
  })),
  row('Camembert', 'camembert', FAIRSEQ, (model) => ({
    pieces: [
      ...unscored(['<s>NOTUSED', '<pad>', '</s>NOTUSED', '<unk>']),
      ['<unk>NOTUSED', -100],
      ...model.pieces.slice(1),
      ['<mask>', 0],
    ],
    unknownId: 3,
    additional: ['<s>NOTUSED', '</s>NOTUSED', '<unk>NOTUSED'],
    template: ['<s> A </s>', '<s> A </s> </s> B </s>'],
  })),
  row('Albert', 'albert', ALBERT, (model, { settings }) => ({
    pieces: withoutNumberCommas(model),
    normalizer: quotedOf(model, settings, settings.do_lower_case !== false),
    template: BERT_TEMPLATE,
  })),
  row('DebertaV2', 'deberta-v2', DEBERTA, (model, { settings }) => ({
    normalizer: debertaNormalizer(model, settings.do_lower_case === true),
    pre_tokenizer: preTokenizers([
      ...(settings.split_by_punct === true ? [{ type: 'Punctuation', behavior: 'Isolated' }] : []),
      metaspace('always'),
    ]),
    template: BERT_TEMPLATE,
  })),
  row('XLNet', 'xlnet', XLNET, (model, { settings }) => ({
    pieces: withoutNumberCommas(model),
    normalizer: quotedOf(model, settings, settings.do_lower_case === true),
    additional: ['<eop>', '<eod>'],
    template: ['A sep cls:2', 'A sep B:1 sep:1 cls:2'],
  })),
  row('BigBird', 'big_bird', BIG_BIRD, () => ({
    template: BERT_TEMPLATE,
  })),
  row('MBart', 'mbart', FAIRSEQ, (model, { settings }) => {
    const language = languageOf(settings, 'en_XX')
    return {
      ...fairseq(model, [...LANGUAGES_OF.mbart, '<mask>']),
      additional: LANGUAGES_OF.mbart,
      template: [`A </s> ${language}`, `A B </s> ${language}`],
    }
  }),
  row('MBart50', 'mbart50', FAIRSEQ_LATER, (model, { settings }) => {
    const language = languageOf(settings, 'en_XX')
    return {
      ...fairseq(model, [...LANGUAGES_OF.mbart50, '<mask>']),
      additional: LANGUAGES_OF.mbart50,
      template: [`${language} A </s>`, `${language} A B </s>`],
    }
  }),
  row('Nllb', 'nllb nllb-moe', FAIRSEQ_LATER, (model, { settings }) => {
    const language = languageOf(settings, 'eng_Latn')
    return {
      ...fairseq(model, []),
      additional: Array.isArray(settings.additional_special_tokens) ? [] : LANGUAGES_OF.nllb,
      template:
        settings.legacy_behaviour === true
          ? [`A </s> ${language}`, `A B </s> ${language}`]
          : [`${language} A </s>`, `${language} A B </s>`],
    }
  }),
  row('XGLM', 'xglm', FAIRSEQ_PLAIN, (model) => {
    const unused = Array.from({ length: 7 }, (_, index) => `<madeupword${index}>`)
    return {
      ...fairseq(model, unused),
      additional: unused,
      template: ['</s> A', '</s> A </s> </s> B'],
    }
  }),
  row('Pegasus', 'pegasus bigbird_pegasus', PEGASUS, pegasus),
  row('Llama CodeLlama', 'llama mistral mixtral phi3 persimmon fuyu', LLAMA, llama),
  row('Gemma', 'gemma gemma2 recurrent_gemma', GEMMA, gemma),
  {
    names: 'M2M100',
    modelTypes: 'm2m_100',
    tokens: FAIRSEQ_PLAIN,
    async build(folder) {
      const model = await folder.readPieces()
      const { settings, roles } = folder
      const codes = settings.language_codes === 'wmt21' ? LANGUAGES_OF.wmt21 : LANGUAGES_OF.m2m100
      const language = `__${languageOf(settings, 'en')}__`
      return {
        ...ownSteps(model),
        model: await modelOfVocabulary(
          model,
          vocabularyOf(await folder.readIds()),
          unknownOf(roles),
        ),
        additional: codes.map((code) => `__${code}__`),
        template: [`${language} A eos`, `${language} A B eos`],
      }
    },
  },
  {
    names: 'Siglip',
    modelTypes: 'siglip siglip_text_model',
    tokens: Object.fromEntries(
      Object.entries({ ...T5, pad_token: '</s>' }).map(([role, content]) => [
        role,
        { content: String(content), lstrip: true, rstrip: true, normalized: false },
      ]),
    ),
    async build(folder) {
      const model = await folder.readPieces()
      const { settings, roles } = folder
      return {
        model: await modelOfVocabulary(
          model,
          model.pieces.map(([text]) => text),
          unknownOf(roles),
        ),
        normalizer: captionNormalizer(model, settings.do_lower_case !== false),
        pre_tokenizer: metaspace('first'),
        decoder: metaspace('first'),
        template: ['A eos', 'A eos B eos'],
      }
    },
  },
  {
    names: 'Marian',
    modelTypes: 'marian',
    tokens: T5,
    async build(folder) {
      const model = await folder.readPieces('source.spm')
      const { settings, roles } = folder
      const isSeparate = settings.separate_vocabs === true
      const vocabulary = vocabularyOf(await folder.readIds())
      return {
        ...ownSteps(model),
        model: await modelOfVocabulary(model, vocabulary, unknownOf(roles)),
        ...(isSeparate && { answers: await folder.readIds('target_vocab.json') }),
        found: vocabulary
          .filter((token) => /^>>.+<<$/.test(token))
          .map((token) => ({ ...specialToken(token, false), normalized: false })),
        template: ['A eos', 'A B eos'],
      }
    },
  },
]

function row(names: string, modelTypes: string, tokens: UsualTokens, rules: Rules): TokenizerClass {
  return {
    names,
    modelTypes,
    tokens,
    async build(folder) {
      const model = await folder.readPieces()
      const steps = metaspace(schemeOf(folder.settings))
      const own = rules(model, folder)
      return {
        normalizer: usualNormalizer(model),
        pre_tokenizer: steps,
        decoder: steps,
        found: piecesFound(model),
        ...own,
        model: await modelOfPieces(model, own),
      }
    },
  }
}

/** The steps of SentencePiece itself, for classes without a faster counterpart. */
function ownSteps(model: SentencePieceModel): Pick<TokenizerParts, 'normalizer' | 'decoder'> & {
  readonly pre_tokenizer: Step
} {
  // Pieces of several words exist only if words were not cut in training.
  const cutsWords = !model.pieces.some(([text]) => /[^▁]▁/.test(text))
  const steps = metaspace(model.addsPrefix ? 'always' : 'never', cutsWords)
  return { normalizer: ownNormalizer(model), pre_tokenizer: steps, decoder: steps }
}

/** Control pieces and pieces of users are found in a text before it is split. */
function piecesFound(
  { pieces, controls, userDefined }: SentencePieceModel,
  special: readonly string[] = [],
): NonNullable<TokenizerParts['found']> {
  return pieces.flatMap(([text], id) => {
    if (!controls.has(id) && !userDefined.has(id)) return []
    const isSpecial = controls.has(id) || special.includes(text)
    return [{ ...specialToken(text, isSpecial), normalized: false }]
  })
}

/** The vocabulary of models that fairseq trained, which has its own first tokens. */
function fairseq(model: SentencePieceModel, last: readonly string[]): PieceRules {
  const first = unscored(['<s>', '<pad>', '</s>', '<unk>'])
  return { pieces: [...first, ...model.pieces.slice(3), ...unscored(last)], unknownId: 3 }
}

function pegasus(model: SentencePieceModel, { settings, roles }: TokenizerFolder): PieceRules {
  const offset = countOf(settings.offset, 103, EXTRA_IDS_MAX)
  const sentence =
    settings.mask_token_sent === null ? undefined : String(settings.mask_token_sent ?? '<mask_1>')
  const unused = Array.from({ length: Math.max(offset - 2, 0) }, (_, id) => `<unk_${id + 2}>`)
  const content = (role: string): string => roles.get(role)?.content ?? ''
  const masks = sentence === undefined ? [] : [sentence, content('mask_token')]
  return {
    pieces: [
      ...unscored([content('pad_token'), content('eos_token'), ...masks]),
      ...unused.map((text) => [text, -100] as const),
      ...model.pieces.slice(2),
    ],
    unknownId: model.unknownId + offset,
    pre_tokenizer: preTokenizers([{ type: 'WhitespaceSplit' }, metaspace('always')]),
    additional: [...(sentence === undefined ? [] : [sentence]), ...unused],
    template: ['A eos', 'A B eos'],
  }
}

function llama(model: SentencePieceModel, { settings }: TokenizerFolder): PieceRules {
  const prefixes = settings.add_prefix_space !== false
  const marks = replace(' ', '▁')
  const isLegacy = settings.legacy !== false
  return {
    pieces: [...unscored(model.pieces.slice(0, 3).map(([text]) => text)), ...model.pieces.slice(3)],
    unknownId: 0,
    byteFallback: true,
    normalizer: isLegacy
      ? normalizers(prefixes ? [{ type: 'Prepend', prepend: '▁' }, marks] : [marks])
      : null,
    pre_tokenizer: isLegacy ? null : metaspace(schemeOf(settings), false),
    decoder: pieceDecoder(prefixes),
    template: decoderTemplate(settings),
  }
}

function gemma(model: SentencePieceModel, { settings, roles }: TokenizerFolder): PieceRules {
  const first = ['pad_token', 'eos_token', 'bos_token'].map(
    (role) => roles.get(role)?.content ?? '',
  )
  const pieces = [...unscored(first), ...model.pieces.slice(3)]
  const tab = pieces.findIndex(([text]) => text === '<0x09>')
  const hasTab = pieces.some(([text]) => text === '\t')
  return {
    pieces: hasTab || tab < 0 ? pieces : pieces.with(tab, ['\t', 0]),
    unknownId: 3,
    byteFallback: true,
    parts: hasTab || tab < 0 ? [] : [['\t', tab]],
    normalizer: replace(' ', '▁'),
    pre_tokenizer: {
      type: 'Split',
      pattern: { String: ' ' },
      behavior: 'MergedWithPrevious',
      invert: false,
    },
    decoder: pieceDecoder(false),
    found: piecesFound(model, ['<start_of_turn>', '<end_of_turn>']),
    template: decoderTemplate(settings),
  }
}

function decoderTemplate(settings: Json): readonly [string, string] {
  const hasStart = settings.add_bos_token !== false
  const ends = settings.add_eos_token === true
  const single = `${hasStart ? 'bos ' : ''}A${ends ? ' eos' : ''}`
  return [single, `${single}${hasStart ? ' bos:1' : ''} B:1${ends ? ' eos:1' : ''}`]
}

/** Numbers before a comma are unlikely pieces, as the original code splits them again. */
function withoutNumberCommas({ pieces }: SentencePieceModel): readonly Piece[] {
  return pieces.map(([text, score]) => [text, /\p{N},$/u.test(text) ? score - 100 : score])
}

function quotedOf(model: SentencePieceModel, settings: Json, lowercases: boolean): Step {
  return quotedNormalizer(model, { keepsAccents: settings.keep_accents === true, lowercases })
}

/** Where a space is added before a text. */
function schemeOf(settings: Json): 'always' | 'first' | 'never' {
  if (settings.add_prefix_space === false) return 'never'
  return settings.legacy === false ? 'first' : 'always'
}

function languageOf({ src_lang: language }: Json, usual: string): string {
  return typeof language === 'string' ? language : usual
}

function unscored(tokens: readonly string[]): readonly Piece[] {
  return tokens.map((text) => [text, 0])
}

function unknownOf(roles: TokenizerFolder['roles']): string {
  return roles.get('unk_token')?.content ?? '<unk>'
}

/** Tokens by their ids, which are the numbers from 0. */
function vocabularyOf(ids: Readonly<Record<string, number>>): readonly string[] {
  const tokens: string[] = []
  for (const [token, id] of Object.entries(ids)) tokens[id] = token
  if (Object.keys(tokens).length === tokens.length) return tokens
  throw new Error('vocab.json leaves out ids')
}

function countOf(value: unknown, usual: number, max: number): number {
  return Number.isInteger(value) && Number(value) >= 0 && Number(value) <= max
    ? Number(value)
    : usual
}
