import { isRecord } from '#shared/json.ts'

/** The tokens of a translation model's languages. */
export interface Languages {
  /**
   * The place of the target language: the first token of the answer, or of the source (Marian),
   * which then has no token for its own language.
   */
  readonly place: 'answer' | 'source'
  /** All codes, in the order of the vocabulary. */
  readonly codes: readonly string[]
  isLanguage(tokenId: number): boolean
  /** The token of a language by its code in the model, its tag (BCP 47) or its name. */
  find(name: string): number | undefined
}

interface Language {
  readonly token: string
  readonly code: string
  readonly tokenId: number
  /** The shortest tag of the same meaning: `fr` for `fra_Latn`. */
  readonly tag: string
}

/** Forms of language tokens: `fra_Latn` (NLLB), `__fr__` (M2M100), `fr_XX` (mBART). */
const TOKEN_FORMS = [
  /^([a-z]{3}_[A-Z][a-z]{3})$/,
  /^__([a-z]{2,3}(?:_[A-Za-z]{2,4})?)__$/,
  /^([a-z]{2}_[A-Z]{2})$/,
]
/** `>>fra<<`, in Marian vocabularies for models with several targets. */
const SOURCE_FORM = /^>>(\w{2,20})<<$/
/** mBART's region for languages without one. */
const NO_REGION = /_XX$/
const LANGUAGES_MAX = 1024
const NAME_LENGTH_MAX = 100

/**
 * The languages among the tokens that a tokenizer adds to its vocabulary; undefined for a model
 * with fewer than two.
 */
export function findLanguages(
  tokenizerJson: object,
  tokenizerConfig: Readonly<Record<string, unknown>>,
  findTokenId: (token: string) => number | undefined,
): Languages | undefined {
  const { added_tokens: added, model } = tokenizerJson as Readonly<Record<string, unknown>>
  const { additional_special_tokens: former, extra_special_tokens: extra } = tokenizerConfig
  const names = [added, former, extra]
    .flatMap((list) => (Array.isArray(list) ? list : []))
    .map((entry: unknown) => (isRecord(entry) ? entry.content : entry))
    .filter((name) => typeof name === 'string')
  const ofAnswers = languagesIn(names, TOKEN_FORMS, findTokenId)
  if (ofAnswers.length >= 2) return describe(ofAnswers, 'answer')
  const ofSources = languagesIn(wordsOf(model), [SOURCE_FORM], findTokenId)
  return ofSources.length >= 2 ? describe(ofSources, 'source') : undefined
}

function wordsOf(model: unknown): readonly string[] {
  const { vocab } = isRecord(model) ? model : {}
  if (isRecord(vocab)) return Object.keys(vocab)
  const entries: readonly unknown[] = Array.isArray(vocab) ? vocab : []
  return entries.map((entry) => String(Array.isArray(entry) ? entry[0] : ''))
}

function languagesIn(
  tokens: readonly string[],
  forms: readonly RegExp[],
  findTokenId: (token: string) => number | undefined,
): readonly Language[] {
  const named = [...new Set(tokens)].flatMap((token) => {
    const code = forms.map((form) => form.exec(token)?.[1]).find((match) => match)
    return code === undefined ? [] : [{ token, code }]
  })
  return named.slice(0, LANGUAGES_MAX).flatMap(({ token, code }) => {
    const [tokenId, tag] = [findTokenId(token), tagOf(code)]
    return tokenId === undefined || tag === undefined ? [] : [{ token, code, tokenId, tag }]
  })
}

function describe(found: readonly Language[], place: Languages['place']): Languages {
  const tokenIds = new Set(found.map(({ tokenId }) => tokenId))
  const byName = indexByName(found)
  return {
    place,
    codes: found.map(({ code }) => code),
    isLanguage: (tokenId) => tokenIds.has(tokenId),
    find(name) {
      if (name.length > NAME_LENGTH_MAX) return undefined
      return byName.get(keyOf(name)) ?? byName.get(keyOf(tagOf(name) ?? ''))
    },
  }
}

/** The shortest tag of the same meaning; undefined for other text. */
function tagOf(code: string): string | undefined {
  try {
    const [tag = ''] = Intl.getCanonicalLocales(code.replace(NO_REGION, '').replaceAll('_', '-'))
    return new Intl.Locale(tag).minimize().toString()
  } catch {
    return undefined
  }
}

/** Names in English and in the language itself; the language's usual script has the plain name. */
function indexByName(languages: readonly Language[]): ReadonlyMap<string, number> {
  const names = new Map<string, number>()
  const english = new Intl.DisplayNames(['en'], { type: 'language' })
  const isPlain = ({ tag }: Language): boolean => !tag.includes('-')
  const ordered = [...languages.filter(isPlain), ...languages.filter((one) => !isPlain(one))]
  const add = (tokenId: number, list: readonly (string | undefined)[]): void => {
    for (const name of list) {
      if (name !== undefined && !names.has(keyOf(name))) names.set(keyOf(name), tokenId)
    }
  }
  // Codes come first, so that the name of a language never hides the code of another.
  for (const { token, code, tokenId, tag } of ordered) add(tokenId, [token, code, tag])
  for (const { tokenId, tag } of ordered) {
    const { language } = new Intl.Locale(tag)
    const own = new Intl.DisplayNames([tag], { type: 'language' })
    const scripted = new Intl.Locale(tag).maximize()
    const withScript = `${language}-${scripted.script ?? ''}`.replace(/-$/, '')
    add(tokenId, [english.of(tag), english.of(withScript), own.of(tag), language])
    add(tokenId, [english.of(language), own.of(language)])
  }
  return names
}

function keyOf(name: string): string {
  return name.trim().toLowerCase().replaceAll('_', '-')
}

/** The languages named in an instruction to translate. */
interface TranslationRequest {
  readonly source?: string
  readonly target: string
}

const INSTRUCTION_LENGTH_MAX = 200
const NAME = String.raw`[\p{L}\p{M}\p{N}_()'’. -]{1,60}?`
const OBJECT = '(?:(?:this|it|the|following|text|sentence)[,:]? )*'
const INSTRUCTION = new RegExp(
  `^(?:please )?translate ${OBJECT}(?:(?:from )?(${NAME}) )?(?:in)?to (${NAME})[.:!]?$`,
  'iu',
)

/** Parses "Translate to French" and "Translate from German to French"; undefined for other text. */
export function readTranslationRequest(instruction: string): TranslationRequest | undefined {
  if (instruction.length > INSTRUCTION_LENGTH_MAX) return undefined
  const [, source, target] = INSTRUCTION.exec(instruction.trim().replace(/\s+/g, ' ')) ?? []
  if (target === undefined) return undefined
  return { target, ...(source !== undefined && { source }) }
}
