import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import type { Clock } from '#shared/clock.ts'
import type { ChatMessage, TemplateOptions, ToolDefinition } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'

import { createChatTemplate } from './chat-template.ts'
import type { ChatTemplate, ChatTemplateSource } from './chat-template.ts'
import { createTokenizer } from './tokenizer.ts'
import type { Tokenizer } from './tokenizer.ts'

/** What a language model's folder says about text: tokens, chats, where an answer ends. */
export interface TextModel {
  readonly tokenizer: Tokenizer
  readonly chatTemplate: ChatTemplate | undefined
  /** Tokens that end an answer. */
  readonly endTokenIds: ReadonlySet<number>
  /** The token that a fresh document begins with. */
  readonly documentStartTokenId: number | undefined
}

/** Reads the tokenizer and chat template of a model folder in the Hugging Face layout. */
export async function loadTextModel(folder: string, clock: Clock): Promise<TextModel> {
  const [tokenizerJson, tokenizerConfig, generationConfig, config, templateText] =
    await Promise.all([
      readJson(join(folder, 'tokenizer.json')),
      readOptionalJson(join(folder, 'tokenizer_config.json')),
      readOptionalJson(join(folder, 'generation_config.json')),
      readOptionalJson(join(folder, 'config.json')),
      readOptional(join(folder, 'chat_template.jinja')),
    ])
  const tokenizer = createTokenizer(tokenizerJson, tokenizerConfig)
  const specialTokens = specialTokensOf(tokenizerConfig)
  const template = templateText ?? tokenizerConfig.chat_template
  return {
    tokenizer,
    chatTemplate:
      template === undefined || template === null
        ? undefined
        : createChatTemplate(
            { template: template as ChatTemplateSource['template'], specialTokens },
            clock,
          ),
    endTokenIds: endTokensOf(tokenizer, specialTokens, [generationConfig, config]),
    documentStartTokenId: documentStartOf(tokenizer, specialTokens),
  }
}

/** The text that a chat becomes. Throws for a model that has no chat template. */
export function renderChat(
  model: TextModel,
  messages: readonly ChatMessage[],
  tools: readonly ToolDefinition[],
  options: TemplateOptions = {},
): string {
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

async function readJson(path: string): Promise<Json> {
  return JSON.parse(await readFile(path, 'utf8')) as Json
}

async function readOptionalJson(path: string): Promise<Json> {
  const text = await readOptional(path)
  return text === undefined ? {} : (JSON.parse(text) as Json)
}

async function readOptional(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** `bos_token` and its like: each is a string or an object with a `content`. */
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
  const listed = configs.flatMap(({ eos_token_id: ids }) => (Array.isArray(ids) ? ids : [ids]))
  return new Set([named, ...listed].filter((id): id is number => typeof id === 'number'))
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
