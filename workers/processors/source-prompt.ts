import type { GenerateInput, Prompt, TranslationLanguages } from '#shared/contracts/completion.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { WorkBudget } from '#workers/preparation/work-budget.ts'
import { type Languages, readTranslationRequest } from '#workers/text/languages.ts'

import type { CompletionModel } from './completion-model.ts'
import { contextLengthExceeded, type PreparedPrompt, readPrompt } from './completion-prompt.ts'

/** Refuses fields that this kind of model does not support. */
export function checkSourceFields(model: CompletionModel, input: GenerateInput): void {
  const { languages = {} } = input
  const given = [
    ...(languages.source === undefined ? [] : ['source_language']),
    ...(languages.target === undefined ? [] : ['target_language']),
  ]
  const [param] = given
  if (param !== undefined && languagesOf(model) === undefined) {
    throw failure.invalidRequest(
      `Unsupported parameter: '${param}' is not supported with this model, which has no tokens of languages.`,
      { param, code: 'unsupported_parameter' },
    )
  }
  if (model.engine.decoderLength !== undefined) refusePromptScores(input)
}

function refusePromptScores({ echo, logprobs, promptLogprobs }: GenerateInput): void {
  const asked = [
    ...(promptLogprobs === undefined ? [] : [['prompt_logprobs', "'prompt_logprobs'"] as const]),
    ...(echo && logprobs !== null ? [['echo', "'echo' together with 'logprobs'"] as const] : []),
  ]
  const [first] = asked
  if (first === undefined) return
  const [param, named] = first
  throw failure.invalidRequest(
    `Unsupported parameter: ${named} is not supported with this model, whose prompts have no log-probabilities.`,
    { param, code: 'unsupported_parameter' },
  )
}

/**
 * Tokenizes a prompt for an encoder, and chooses the tokens before its answer. Prompt and answer
 * may each be as long as the context.
 */
export async function prepareSource(
  model: CompletionModel,
  asked: Prompt,
  { maxTokens, languages = {} }: Pick<GenerateInput, 'maxTokens' | 'languages'>,
  request: { readonly budget?: WorkBudget; readonly signal?: AbortSignal } = {},
): Promise<PreparedPrompt> {
  const { contextLength, decoderLength = contextLength } = model.engine
  const translation = findTranslation(model, asked, languages)
  const {
    tokenIds: encoded,
    rendered,
    ...read
  } = await readPrompt(model, translation.prompt, request)
  const count = read.count + translation.prefix.length
  if (encoded === undefined || count > contextLength) {
    throw contextLengthExceeded(asked, { contextLength, count, maxTokens: 0 })
  }
  if (count === 0) {
    throw failure.invalidRequest("Invalid 'prompt': this model needs at least one token.", {
      param: 'prompt',
    })
  }
  checkTarget(translation, encoded)
  const { startTokenIds } = translation
  const room = Math.max(decoderLength - startTokenIds.length, 0)
  return {
    tokenIds: [...translation.prefix, ...withSourceLanguage(encoded, translation)],
    source: { length: count, startTokenIds },
    droppedCount: 0,
    text: rendered.text,
    maxNewTokens: Math.min(maxTokens ?? room, room),
    continuesText: false,
    originalStart: undefined,
  }
}

interface Translation {
  readonly prompt: Prompt
  readonly sourceTokenId?: number | undefined
  readonly known?: Languages
  /** The tokens that the decoder reads before every answer. */
  readonly startTokenIds: readonly number[]
  /** The target language, if the source starts with it. */
  readonly prefix: readonly number[]
}

/** The languages of a prompt: an edit of a translation model names them in its instruction. */
function findTranslation(
  model: CompletionModel,
  prompt: Prompt,
  given: TranslationLanguages,
): Translation {
  const known = languagesOf(model)
  const { forcedStartTokenId } = model.text.generation ?? {}
  const start = decoderStartOf(model)
  const usual = forcedStartTokenId === undefined ? [start] : [start, forcedStartTokenId]
  if (known === undefined) return { prompt, startTokenIds: usual, prefix: [] }
  const isEdit = prompt.form === 'edit'
  const asked = isEdit ? requestOf(prompt.instruction) : given
  const tokenOf = (name: string | undefined, param: string): number | undefined =>
    name === undefined ? undefined : findLanguage(known, name, isEdit ? 'instruction' : param)
  const named = tokenOf(asked.target, 'target_language')
  const source: Prompt = isEdit ? { form: 'text', text: prompt.input } : prompt
  if (known.place === 'source') {
    checkSourceIsUnnamed(asked, isEdit)
    const prefix = named === undefined ? [] : [named]
    return { prompt: source, known, startTokenIds: usual, prefix }
  }
  const sourceTokenId = tokenOf(asked.source, 'source_language')
  // The decoder of mBART starts with the target language itself.
  const isStart = known.isLanguage(start)
  const target = named ?? (isStart ? start : forcedStartTokenId)
  if (target === undefined) throw missingTarget()
  const startTokenIds = isStart ? [target] : [start, target]
  return { prompt: source, known, sourceTokenId, startTokenIds, prefix: [] }
}

/** A source that must begin with its target may do so itself: `>>fra<< The river is cold.` */
function checkTarget({ known, prefix }: Translation, tokenIds: readonly number[]): void {
  if (known?.place !== 'source' || prefix.length > 0) return
  if (tokenIds[0] === undefined || !known.isLanguage(tokenIds[0])) throw missingTarget()
}

function missingTarget(): ServiceError {
  return failure.invalidRequest(
    "Missing required parameter: 'target_language'. This model needs the language that it translates to.",
    { param: 'target_language', code: 'missing_required_parameter' },
  )
}

function checkSourceIsUnnamed({ source }: TranslationLanguages, isEdit: boolean): void {
  if (source === undefined) return
  const param = isEdit ? 'instruction' : 'source_language'
  throw failure.invalidRequest(
    `Invalid '${param}': this model detects the source language itself. Name only the target.`,
    { param, code: 'unsupported_parameter' },
  )
}

function requestOf(instruction: string): TranslationLanguages {
  const asked = readTranslationRequest(instruction)
  if (asked !== undefined) return asked
  throw failure.invalidRequest(
    "Invalid 'instruction': this model translates. Write 'Translate to French' or 'Translate from German to French'.",
    { param: 'instruction', code: 'invalid_value' },
  )
}

const SHOWN_CODES_MAX = 20

function findLanguage(known: Languages, name: string, param: string): number {
  const tokenId = known.find(name)
  if (tokenId !== undefined) return tokenId
  const { codes } = known
  const more = codes.length > SHOWN_CODES_MAX ? ` and ${codes.length - SHOWN_CODES_MAX} more` : ''
  throw failure.invalidRequest(
    `Invalid '${param}': '${name.slice(0, 40)}' is not a language of this model. ` +
      `It has ${codes.slice(0, SHOWN_CODES_MAX).join(', ')}${more}, which may be named in English too.`,
    { param, code: 'invalid_value' },
  )
}

/** The tokenizer writes one language at the beginning or the end; the requested one replaces it. */
function withSourceLanguage(
  tokenIds: readonly number[],
  { known, sourceTokenId }: Translation,
): readonly number[] {
  if (known === undefined || sourceTokenId === undefined) return tokenIds
  const place = [0, tokenIds.length - 1].find((at) => known.isLanguage(tokenIds[at] as number))
  if (place !== undefined) return tokenIds.with(place, sourceTokenId)
  throw failure.invalidRequest(
    "Unsupported parameter: 'source_language' is not supported here, because the prompt has no token of a language to replace.",
    { param: 'source_language', code: 'unsupported_parameter' },
  )
}

function languagesOf({ engine, text }: CompletionModel): Languages | undefined {
  return engine.decoderLength === undefined ? undefined : text.languages
}

function decoderStartOf({ text }: CompletionModel): number {
  const { decoderStartTokenId } = text.generation ?? {}
  // `createCompletionModel` refuses such a folder.
  if (decoderStartTokenId === undefined) throw new Error('the decoder has no start token')
  return decoderStartTokenId
}
