import { isRecord } from '#shared/json.ts'

type Json = Readonly<Record<string, unknown>>

/** A token that is found in a text before it is split, without its id. */
interface SpecialToken {
  readonly content: string
  readonly special: boolean
  readonly single_word: boolean
  readonly lstrip: boolean
  readonly rstrip: boolean
  readonly normalized: boolean
}

/** An added token of a `tokenizer.json`. */
export interface AddedToken extends SpecialToken {
  readonly id: number
}

/** Special tokens by their setting, such as `eos_token`. */
export type Roles = ReadonlyMap<string, SpecialToken>

/** The special tokens that a class has unless its files name others; an object states more. */
export type UsualTokens = Readonly<Record<string, string | Partial<SpecialToken>>>

/** The special tokens of models that fairseq trained without a mask. */
export const FAIRSEQ_PLAIN: UsualTokens = {
  bos_token: '<s>',
  eos_token: '</s>',
  unk_token: '<unk>',
  sep_token: '</s>',
  pad_token: '<pad>',
  cls_token: '<s>',
}
/** The special tokens of RoBERTa and others that fairseq trained with a mask. */
export const FAIRSEQ: UsualTokens = {
  ...FAIRSEQ_PLAIN,
  mask_token: { content: '<mask>', lstrip: true, normalized: false },
}

/** In the order in which ids are given to those outside the vocabulary. */
const ROLES = ['bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask'].map((role) => `${role}_token`)

/** The tokens around a text, and around two texts, of BERT and many others. */
export const BERT_TEMPLATE = ['cls A sep', 'cls A sep B:1 sep:1'] as const

/** The special tokens of a folder's settings, completed by those of its class. */
export function rolesOf(settings: Json, usual: UsualTokens): Roles {
  const roles = new Map<string, SpecialToken>()
  for (const role of ROLES) {
    const stated = settings[role]
    const token = stated === undefined ? usual[role] : tokenLike(stated, usual[role])
    if (token === undefined || specialToken(token).content === '') continue
    roles.set(role, specialToken(token))
  }
  return roles
}

/** The usual form of a token applies to a setting that states its text alone. */
function tokenLike(
  stated: unknown,
  usual: UsualTokens[string] | undefined,
): string | Partial<SpecialToken> | undefined {
  if (isRecord(stated)) return typeof stated.content === 'string' ? stated : undefined
  if (typeof stated !== 'string') return undefined
  return isRecord(usual) ? { ...usual, content: stated } : stated
}

export function specialToken(
  token: string | Partial<SpecialToken>,
  isSpecial = true,
): SpecialToken {
  const stated: Partial<SpecialToken> = typeof token === 'string' ? { content: token } : token
  return {
    content: String(stated.content),
    special: isSpecial,
    single_word: stated.single_word === true,
    lstrip: stated.lstrip === true,
    rstrip: stated.rstrip === true,
    normalized: stated.normalized ?? (typeof token !== 'string' || !isSpecial),
  }
}

/** Tokens that a folder or its class adds, and the vocabulary that they are added to. */
interface AddedSources {
  readonly settings: Json
  /** `added_tokens.json`: the ids of tokens in older folders. */
  readonly older: Json
  readonly roles: Roles
  /** Found in texts by the model itself, such as the control pieces of SentencePiece. */
  readonly ofModel: readonly AddedToken[]
  /** Further special tokens of the class. */
  readonly additional: readonly string[]
  readonly idOf: (token: string) => number | undefined
  readonly vocabularySize: number
}

/**
 * The added tokens of a folder, by increasing id. `added_tokens_decoder` states them with their
 * ids; special tokens that the vocabulary lacks follow it in order.
 */
export function addedTokens(sources: AddedSources): readonly AddedToken[] {
  const { settings, older, roles, ofModel, additional, idOf, vocabularySize } = sources
  const special = [
    ...roles.values(),
    ...namedTokens(settings.additional_special_tokens),
    ...additional.map((token) => specialToken(token)),
  ]
  const isSpecial = new Set(special.map(({ content }) => content))
  const listed = [...statedTokens(settings.added_tokens_decoder), ...olderTokens(older, isSpecial)]
  const isListed = new Set(listed.map(({ content }) => content))
  const byContent = new Map(ofModel.map((token) => [token.content, token] as const))
  for (const token of listed) {
    const { content } = token
    byContent.set(content, { ...token, special: token.special || isSpecial.has(content) })
  }
  let next = [...byContent.values()].reduce(
    (last, { id }) => Math.max(last, id + 1),
    vocabularySize,
  )
  for (const token of special) {
    const { content } = token
    if (isListed.has(content)) continue
    const id = byContent.get(content)?.id ?? idOf(content) ?? next
    if (id === next) next += 1
    byContent.set(content, { ...token, id })
  }
  return [...byContent.values()].toSorted((a, b) => a.id - b.id)
}

function olderTokens(tokens: Json, isSpecial: ReadonlySet<string>): readonly AddedToken[] {
  return Object.entries(tokens).map(([content, id]) => ({
    ...specialToken(content, isSpecial.has(content)),
    id: id as number,
  }))
}

function statedTokens(decoder: unknown): readonly AddedToken[] {
  if (!isRecord(decoder)) return []
  return Object.entries(decoder).flatMap(([id, token]) =>
    isRecord(token) ? [{ ...specialToken(token, token.special === true), id: Number(id) }] : [],
  )
}

function namedTokens(list: unknown): readonly SpecialToken[] {
  if (!Array.isArray(list)) return []
  return list
    .filter((token) => typeof token === 'string' || isRecord(token))
    .map((token: string | Partial<SpecialToken>) => specialToken(token))
}

/**
 * The `post_processor` of a template such as `cls A sep B:1 sep:1`: roles of special tokens, and
 * the texts A and B, each with its type. Other words are tokens themselves.
 */
export function postProcessorOf(
  [single, pair]: readonly [string, string],
  roles: Roles,
  idOf: (token: string) => number | undefined,
): Json {
  const used = new Map<string, number>()
  const partsOf = (template: string): readonly Json[] =>
    template.split(' ').map((word) => {
      const [, name = '', type = '0'] = /^(.+?)(?::(\d))?$/.exec(word) ?? []
      if (name === 'A' || name === 'B') return { Sequence: { id: name, type_id: Number(type) } }
      const token = roles.get(`${name}_token`)?.content ?? name
      const id = idOf(token)
      if (id === undefined) throw new Error(`the vocabulary has no ${token}`)
      used.set(token, id)
      return { SpecialToken: { id: token, type_id: Number(type) } }
    })
  return {
    type: 'TemplateProcessing',
    single: partsOf(single),
    pair: partsOf(pair),
    special_tokens: Object.fromEntries(
      [...used].map(([token, id]) => [token, { id: token, ids: [id], tokens: [token] }]),
    ),
  }
}
