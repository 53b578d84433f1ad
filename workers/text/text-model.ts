import { readdir } from 'node:fs/promises'
import { basename, join } from 'node:path'

import type { Clock } from '#shared/clock.ts'
import {
  type AnswerDialect,
  REASONING_FORMATS,
  type ReasoningFormat,
} from '#shared/contracts/answer-formats.ts'
import type {
  ChatMessage,
  Hint,
  Prompt,
  SamplingDefaults,
  ToolDefinition,
} from '#shared/contracts/completion.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { isRecord } from '#shared/json.ts'
import { findJson, findModelText, readModelText } from '#workers/models/folder-json.ts'
import type { WorkBudget } from '#workers/preparation/work-budget.ts'

import { type DialectOptions, findDialect } from './answer-dialect.ts'
import { type ChatTemplate, createChatTemplate, type RenderOptions } from './chat-template.ts'
import { looksLikeTag } from './content-encoder.ts'
import { contentOnly, type RenderedText, surround } from './content-spans.ts'
import { type GenerationRules, readGenerationRules } from './generation-rules.ts'
import { findLanguages, type Languages } from './languages.ts'
import { createTokenizer, encodeWithin, type Tokenizer } from './tokenizer.ts'
import { readTokenizer } from './tokenizer-files/read-tokenizer.ts'

/** The text rules of a language model's folder: tokens, chats, ends of answers. */
export interface TextModel {
  /** The folder from which a thread can load the same. */
  readonly folder?: string
  readonly tokenizer: Tokenizer
  readonly chatTemplate: ChatTemplate | undefined
  /** The dialect of answers to chats; Hermes without reasoning when absent. */
  readonly dialect?: AnswerDialect
  /** Sampling defaults of the model's files. */
  readonly samplingDefaults?: SamplingDefaults
  /** Settings of the model's files for the tokens of answers. */
  readonly generation?: GenerationRules
  /** Present for models that translate between several languages. */
  readonly languages?: Languages
  /** Tokens that end an answer. */
  readonly endTokenIds: ReadonlySet<number>
  /** The token that a fresh document begins with. */
  readonly documentStartTokenId: number | undefined
}

/**
 * Reads the tokenizer and chat template of a model folder in the Hugging Face layout. Throws,
 * naming the file, when one is missing or malformed.
 */
export async function loadTextModel(
  folder: string,
  clock: Clock,
  options: DialectOptions = {},
): Promise<TextModel> {
  const read = (name: string): Promise<Json | undefined> => findJson(folder, name)
  const files = await readTokenizer(folder)
  const { json: tokenizerJson, config: tokenizerConfig } = files
  const { model: genai } = (await read('genai_config.json')) ?? {}
  const generation = await read('generation_config.json')
  const config = await read('config.json')
  const configs = [generation, config, genai]
  const specialTokens = {
    ...specialTokensOf((await read('special_tokens_map.json')) ?? {}),
    ...specialTokensOf(tokenizerConfig),
  }
  const template = await findTemplate(folder, tokenizerConfig)
  const templateText = (template ?? []).map(({ template: text }) => text).join('\n')
  const tokenizer = createTokenizer(tokenizerJson, tokenizerConfig, {
    // Tags such as <tool_call> are structural if the chat template writes them.
    isTag: (token) =>
      looksLikeTag(token) ||
      templateText.includes(token) ||
      Object.values(specialTokens).includes(token),
    answers: files.answers,
  })
  const languages = findLanguages(tokenizerJson, tokenizerConfig, tokenizer.findTokenId)
  return {
    folder,
    tokenizer,
    generation: readGenerationRules([generation, config]),
    ...(languages !== undefined && { languages }),
    chatTemplate:
      template === undefined ? undefined : createChatTemplate({ template, specialTokens }, clock),
    samplingDefaults: samplingDefaultsOf(generation ?? {}),
    dialect: findDialect(templateText, tokenizer, options),
    endTokenIds: endTokensOf(tokenizer, specialTokens, configs.filter(isRecord)),
    documentStartTokenId: documentStartOf(tokenizer, specialTokens),
  }
}

const TEMPLATES_MAX = 32

interface NamedTemplate {
  readonly name: string
  readonly template: string
}

/**
 * The chat templates of a folder: `chat_template.jinja` with named ones in
 * `additional_chat_templates/`, or `chat_template.json` of older multimodal models, or those in the
 * tokenizer's configuration.
 */
async function findTemplate(
  folder: string,
  tokenizerConfig: Json,
): Promise<readonly NamedTemplate[] | undefined> {
  const plain =
    (await findModelText(folder, 'chat_template.jinja')) ??
    (await findJson(folder, 'chat_template.json'))?.chat_template ??
    tokenizerConfig.chat_template ??
    undefined
  const templates = (Array.isArray(plain) ? plain : [{ name: 'default', template: plain }]).filter(
    (entry): entry is NamedTemplate =>
      isRecord(entry) && typeof entry.name === 'string' && typeof entry.template === 'string',
  )
  const named = 'additional_chat_templates'
  const files = (await readdir(join(folder, named)).catch(() => [])).filter((name) =>
    name.endsWith('.jinja'),
  )
  for (const file of files.slice(0, TEMPLATES_MAX)) {
    templates.push({
      name: basename(file, '.jinja'),
      template: await readModelText(folder, join(named, file)),
    })
  }
  return templates.length === 0 ? undefined : templates
}

/** The rendered text of a chat. Throws for a model without a chat template. */
export function renderChat(
  model: TextModel,
  messages: readonly ChatMessage[],
  tools: readonly ToolDefinition[],
  options: RenderOptions = {},
): RenderedText {
  if (model.chatTemplate === undefined) {
    throw failure.invalidRequest(
      'This is not a chat model and thus not supported in the v1/chat/completions endpoint. ' +
        'Did you mean to use v1/completions?',
      { param: 'model' },
    )
  }
  return model.chatTemplate.render(messages, tools, options)
}

type Json = Readonly<Record<string, unknown>>

/** `bos_token` and similar tokens: each is a string or an object with a `content`. */
function specialTokensOf(tokenizerConfig: Json): Record<string, string> {
  const found: Record<string, string> = {}
  for (const [name, value] of Object.entries(tokenizerConfig)) {
    const content = typeof value === 'string' ? value : (value as Json | null)?.content
    if (name.endsWith('_token') && typeof content === 'string') found[name] = content
  }
  return found
}

function endTokensOf(
  tokenizer: Tokenizer,
  specialTokens: Readonly<Record<string, string>>,
  configs: readonly Json[],
): ReadonlySet<number> {
  const named = tokenizer.findTokenId(specialTokens.eos_token ?? '')
  const nested = configs.map(({ text_config: text }) => text).filter(isRecord)
  const listed = [...configs, ...nested].flatMap(({ eos_token_id: ids }) =>
    Array.isArray(ids) ? ids : [ids],
  )
  return new Set([named, ...listed].filter((id): id is number => typeof id === 'number'))
}

/** Values that a request could not have are ignored. */
function samplingDefaultsOf(generation: Json): SamplingDefaults {
  const { temperature, top_p: topP, top_k: topK, min_p: minP } = generation
  const { repetition_penalty: repetitionPenalty } = generation
  const within = (value: unknown, low: number, high: number): value is number =>
    typeof value === 'number' && value >= low && value <= high
  return {
    ...(within(temperature, 0, 2) && { temperature }),
    ...(within(topP, 0, 1) && { topP }),
    ...(within(topK, 0, 1_000_000) && Number.isInteger(topK) && { topK }),
    ...(within(minP, 0, 1) && { minP }),
    ...(within(repetitionPenalty, Number.MIN_VALUE, 10) && { repetitionPenalty }),
  }
}

/** Chat models name their turn marker `bos_token`, so the document separator is preferred. */
function documentStartOf(
  tokenizer: Tokenizer,
  specialTokens: Readonly<Record<string, string>>,
): number | undefined {
  return ['<|endoftext|>', specialTokens.bos_token, specialTokens.eos_token]
    .filter((token) => token !== undefined)
    .map((token) => tokenizer.findTokenId(token))
    .find((tokenId) => tokenId !== undefined)
}

/** Whether a client's number is a token id of a vocabulary. */
export function isTokenId(tokenId: number, vocabSize: number): boolean {
  return Number.isInteger(tokenId) && tokenId >= 0 && tokenId < vocabSize
}

/** The refusal of a number that is not a token id. */
export function unknownTokenId(param: string, shown: string, vocabSize: number): ServiceError {
  return failure.invalidRequest(
    `Invalid '${param}': ${shown} is not a token id of this model (out of vocabulary). ` +
      `Expected integers from 0 to ${vocabSize - 1}, as it has ${vocabSize} tokens.`,
    { param, code: 'invalid_value' },
  )
}

/** The tokens around a model's reasoning. */
interface ThinkingTags {
  readonly open: number
  readonly close: number
  /** The token before the opening one. */
  readonly after?: number
}

// Templates with this variable write the effort into the prompt, and need no limit.
const EFFORT_VARIABLE = 'reasoning_effort'

/** The tags of a model that reasons; undefined for others. */
export function findThinkingTags({ tokenizer }: TextModel): ThinkingTags | undefined {
  for (const { tokens } of Object.values(REASONING_FORMATS) as readonly ReasoningFormat[]) {
    if (tokens === undefined) continue
    const open = tokenizer.findTokenId(tokens.open)
    const close = tokenizer.findTokenId(tokens.close)
    const after = tokens.after === undefined ? undefined : tokenizer.findTokenId(tokens.after)
    if (open === undefined || close === undefined) continue
    if (tokens.after === undefined) return { open, close }
    if (after !== undefined) return { open, close, after }
  }
  return undefined
}

/** The limit of reasoning tokens; undefined for no limit. The first hint with a limit wins. */
export function thinkingTokensMax(
  { chatTemplate }: TextModel,
  hints: readonly Hint[] = [],
): number | undefined {
  const limit = hints.find(
    ({ thinkingTokensMax: max, variables }) =>
      typeof max === 'number' &&
      !(variables.includes(EFFORT_VARIABLE) && chatTemplate?.reads(EFFORT_VARIABLE) === true),
  )
  return limit?.thinkingTokensMax ?? undefined
}

/** The fields of hints that have no effect on a model. */
export function ignoredHints(model: TextModel, hints: readonly Hint[] = []): readonly string[] {
  const reasons = findThinkingTags(model) !== undefined
  const isIgnored = ({ variables, isUsual, thinkingTokensMax: max }: Hint): boolean =>
    isUsual !== true &&
    !variables.some((name) => model.chatTemplate?.reads(name)) &&
    !(reasons && max !== undefined)
  return hints.filter(isIgnored).map(({ field }) => field)
}

/** Input of the tokenizer: a prompt of a request, or a text that contains content. */
export type PromptSource =
  | Exclude<Prompt, { readonly form: 'tokenIds' }>
  | { readonly form: 'rendered'; readonly rendered: RenderedText }

/** A prompt as tokens; plain data, so that it can be sent to threads. */
export interface ReadPrompt {
  /** Absent when the text is far too long to be encoded. */
  readonly tokenIds?: readonly number[]
  readonly rendered: RenderedText
  readonly count: number
}

/** How a prompt is read. */
export interface ReadOptions {
  readonly addSpecialTokens: boolean
  /** Beyond this number tokens are only counted, or estimated if there are far too many. */
  readonly tokensMax: number
  /** The token that the template writes for an image, and the text around it. */
  readonly placeholder?: { readonly tokenId: number; readonly margin: string }
}

/** Renders and tokenizes a prompt. Charges the budget for the rendering. */
export async function readPromptSource(
  model: TextModel,
  source: PromptSource,
  { budget, ...options }: ReadOptions & { readonly budget: WorkBudget },
): Promise<ReadPrompt> {
  if (source.form === 'rendered') return encode(model, source.rendered, options)
  if (source.form === 'text') {
    // A raw prompt is the caller's own template, so control tokens in it count, as in other
    // servers.
    return encode(model, { text: source.text, content: [] }, options)
  }
  if (source.form === 'chat') {
    // Each message has at least one token, so thousands that cannot fit are not rendered first.
    const { length: count } = source.messages
    if (count > options.tokensMax) return { rendered: contentOnly(''), count }
    const tools = source.toolChoice === 'none' ? [] : (source.tools ?? [])
    const chat = renderChat(model, source.messages, tools, { ...source.template, budget })
    return encode(model, withMargins(model, chat, options.placeholder), options)
  }
  const text = editPrompt(source.instruction, source.input)
  if (model.chatTemplate === undefined) {
    return encode(model, contentOnly(`${text}\n`), { ...options, addSpecialTokens: true })
  }
  const chat = renderChat(model, [{ role: 'user', content: text }], [], { budget })
  return encode(model, chat, { ...options, addSpecialTokens: false })
}

function withMargins(
  { tokenizer }: TextModel,
  chat: RenderedText,
  placeholder: ReadOptions['placeholder'],
): RenderedText {
  if (placeholder === undefined || placeholder.margin === '') return chat
  const shown = Buffer.from(tokenizer.pieces.bytesOf(placeholder.tokenId)).toString()
  return surround(chat, shown, placeholder.margin)
}

async function encode(
  { tokenizer }: TextModel,
  rendered: RenderedText,
  options: ReadOptions,
): Promise<ReadPrompt> {
  const { text, content } = rendered
  const outcome = await encodeWithin(tokenizer, text, { ...options, content })
  return outcome.fits
    ? { tokenIds: outcome.tokenIds, rendered, count: outcome.tokenIds.length }
    : { rendered, count: outcome.estimatedTokens }
}

function editPrompt(instruction: string, input: string): string {
  const asked = instruction.trim()
  return `${asked}${/[:.?!]$/.test(asked) ? '' : ':'}\n${input}`
}

/** Larger sources are read in a thread; a source of this size takes some 50 ms. */
const INLINE_SIZE_MAX = 65_536
/** The cost of a message beyond its text, as characters. */
const SIZE_PER_MESSAGE = 100

/** Whether a prompt is read in a thread rather than on the event loop. */
export function isLarge(source: PromptSource): boolean {
  return sizeOf(source) > INLINE_SIZE_MAX
}

function sizeOf(source: PromptSource): number {
  if (source.form === 'rendered') return source.rendered.text.length
  if (source.form === 'text') return source.text.length
  if (source.form === 'edit') return source.input.length + source.instruction.length
  const { messages, tools = [], template } = source
  const sizes = messages.map(
    ({ content, toolCalls = [] }) =>
      SIZE_PER_MESSAGE +
      content.length +
      toolCalls.reduce((sum, call) => sum + SIZE_PER_MESSAGE + call.arguments.length, 0),
  )
  const text = sizes.reduce((sum, size) => sum + size, 0)
  const described = tools.length === 0 ? 0 : JSON.stringify(tools).length
  return text + described + JSON.stringify(template?.variables ?? '').length
}
