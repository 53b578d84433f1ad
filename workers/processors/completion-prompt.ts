import type { GenerateInput, Prompt } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import type { SequenceSource } from '#workers/engine/types.ts'
import { WorkBudget } from '#workers/preparation/work-budget.ts'
import { contentOnly, cutText, type RenderedText } from '#workers/text/content-spans.ts'
import {
  isLarge,
  isTokenId,
  type PromptSource,
  type ReadOptions,
  type ReadPrompt,
  readPromptSource,
  unknownTokenId,
} from '#workers/text/text-model.ts'

import type { CompletionModel } from './completion-model.ts'
import {
  type EmbeddedPrompt,
  embedImages,
  type PlacedImages,
  placeImages,
  readImages,
} from './prompt-images.ts'
import { truncateChat } from './prompt-truncation.ts'

/** Requests of one scope may reuse each other's cached prefixes and grammars. */
export function cacheScopeOf(
  { sharesCaches }: Pick<CompletionModel, 'sharesCaches'>,
  organizationId: string,
): string {
  return sharesCaches ? '' : organizationId
}

/** A prompt as the model reads it. */
export interface PreparedPrompt {
  readonly tokenIds: readonly number[]
  /** Present if an encoder reads the prompt. */
  readonly source?: SequenceSource
  /** Present if the prompt has images. */
  readonly embedded?: EmbeddedPrompt
  /** Messages that were dropped from the beginning of the chat. */
  readonly droppedCount: number
  /** The text that `echo` repeats. */
  readonly text: string
  /** Tokens that may be generated in total. */
  readonly maxNewTokens: number
  /** Whether the answer continues in the middle of a text, so that its first space counts. */
  readonly continuesText: boolean
  /**
   * The index of the first token of the text that the answer repeats with changes; undefined
   * without one.
   */
  readonly originalStart: number | undefined
}

/**
 * Tokenizes a prompt, checks that it leaves room for an answer, and limits the answer to that room.
 */
export async function preparePrompt(
  model: CompletionModel,
  prompt: Prompt,
  maxTokens: GenerateInput['maxTokens'],
  request: PromptRequest & { readonly cacheScope?: string } = {},
): Promise<PreparedPrompt> {
  const { contextLength } = model.engine
  const { read, droppedCount } = await readFitting(model, prompt, { maxTokens, request })
  const { tokenIds: encoded, rendered, placed } = read
  const tokenIds = encoded.length > 0 ? encoded : [freshDocument(model)]
  const room = contextLength - tokenIds.length
  const { signal = new AbortController().signal, cacheScope = '' } = request
  return {
    tokenIds,
    droppedCount,
    ...(placed !== undefined && {
      embedded: await embedImages(placed, { scope: cacheScope, signal }),
    }),
    text: rendered.text,
    maxNewTokens: Math.min(maxTokens ?? room, room),
    continuesText: encoded.length > 0 && continuesText(prompt),
    originalStart:
      prompt.form === 'edit'
        ? await findOriginal(model, { rendered, tokenIds, original: prompt.input }, request)
        : undefined,
  }
}

/** The prompt as tokens. Throws when it leaves no room for an answer. */
async function readFitting(
  model: CompletionModel,
  prompt: Prompt,
  asked: { readonly maxTokens: GenerateInput['maxTokens']; readonly request: PromptRequest },
): Promise<{
  readonly read: ReadWithImages & { readonly tokenIds: readonly number[] }
  readonly droppedCount: number
}> {
  const { maxTokens, request } = asked
  const { contextLength } = model.engine
  const { tokenIds, count, ...read } = await readPrompt(model, prompt, request)
  // Without an answer, as for an echoed prompt, the prompt may fill the context.
  const isTooLong = maxTokens === 0 ? count > contextLength : count >= contextLength
  if (!isTooLong && tokenIds !== undefined) {
    return { read: { ...read, tokenIds, count }, droppedCount: 0 }
  }
  if (prompt.form === 'chat' && prompt.isTruncated === true) {
    const room = contextLength - answerRoomOf(contextLength, maxTokens)
    const truncated = await truncateChat(prompt, async (rest) => {
      const { tokenIds: fitting, ...found } = await readPrompt(model, rest, request)
      if (fitting === undefined || found.count > room) return undefined
      return { ...found, tokenIds: fitting }
    })
    if (truncated !== undefined) return truncated
  }
  throw contextLengthExceeded(prompt, { contextLength, count, maxTokens })
}

/** The tokens of the context that a truncated chat leaves for its answer. */
function answerRoomOf(contextLength: number, maxTokens: GenerateInput['maxTokens']): number {
  return Math.min(maxTokens ?? Math.ceil(contextLength / 4), Math.ceil(contextLength / 2))
}

function continuesText(prompt: Prompt): boolean {
  if (prompt.form === 'chat') return prompt.template?.continuesLast === true
  return prompt.form === 'text' || prompt.form === 'tokenIds'
}

/** A prompt as tokens, and its images. */
type ReadWithImages = ReadPrompt & { readonly placed?: PlacedImages }

/** State that the prompts of one request share. */
interface PromptRequest {
  readonly budget?: WorkBudget
  readonly signal?: AbortSignal
}

/** The tokens of a prompt, or an estimate of their number if there are far too many. */
export async function readPrompt(
  model: CompletionModel,
  prompt: Prompt,
  // The template of a chat writes its markers.
  options: PromptRequest & { readonly addSpecialTokens?: boolean } = {},
): Promise<ReadWithImages> {
  if (prompt.form === 'tokenIds') return readTokenIds(model, prompt.tokenIds)
  const { addSpecialTokens = prompt.form !== 'chat', ...request } = options
  const tokensMax = model.engine.contextLength
  const images = await readImages(model, prompt)
  const encoder = images.length > 0 ? model.vision?.encoder : undefined
  const read = await readSource(model, prompt, {
    ...request,
    addSpecialTokens,
    tokensMax,
    ...(encoder !== undefined && { placeholder: encoder.placeholder }),
  })
  if (encoder === undefined || read.tokenIds === undefined) return read
  const placed = placeImages(read.tokenIds, images, {
    imageTokenId: encoder.imageTokenId,
    placeholder: encoder.placeholder,
    encode: (text) => model.text.tokenizer.encode(text, { addSpecialTokens: false }),
  })
  return { ...read, tokenIds: placed.tokenIds, count: placed.tokenIds.length, placed }
}

/** Reads a small prompt on the event loop, and a large one in a thread. */
export async function readSource(
  model: CompletionModel,
  source: PromptSource,
  { budget = new WorkBudget(), signal, ...options }: PromptRequest & ReadOptions,
): Promise<ReadPrompt> {
  const { folder } = model.text
  if (folder === undefined || !isLarge(source)) {
    return readPromptSource(model.text, source, { ...options, budget })
  }
  const task = { kind: 'prompt', folder, source, options, stepsMax: budget.left } as const
  return model.prompts.run(task, { param: PARAMS[source.form], budget, signal })
}

const PARAMS = { chat: 'messages', edit: 'input', text: 'prompt', rendered: 'prompt' } as const

/** The start of the text to edit; undefined if its first token spans more text. */
async function findOriginal(
  model: CompletionModel,
  prompt: {
    readonly rendered: RenderedText
    readonly tokenIds: readonly number[]
    readonly original: string
  },
  request: PromptRequest,
): Promise<number | undefined> {
  const { rendered, tokenIds, original } = prompt
  const hasMarkers = model.text.chatTemplate === undefined
  // Leading space may belong to one token with the text before, or with its first word.
  const oneSpace = original.replace(/^\s+(?=\s\S)/, '')
  for (const shown of new Set([original, oneSpace, original.trimStart()])) {
    const before = cutText(rendered, rendered.text.lastIndexOf(shown))
    const source = { form: 'rendered', rendered: before } as const
    const options = { addSpecialTokens: hasMarkers, tokensMax: model.engine.contextLength }
    const { tokenIds: start = [] } = await readSource(model, source, { ...request, ...options })
    if (start.every((id, at) => id === tokenIds[at])) return start.length
  }
  return undefined
}

/** Checks and decodes token ids. Throws `invalidRequest` for one that the model lacks. */
export function readTokenIds(
  model: CompletionModel,
  tokenIds: readonly number[],
  param = 'prompt',
): ReadPrompt {
  const { vocabSize } = model.engine
  const wrong = tokenIds.find((id) => !isTokenId(id, vocabSize))
  if (wrong !== undefined) throw unknownTokenId(param, String(wrong), vocabSize)
  const rendered = contentOnly(spell(model, tokenIds))
  return { tokenIds, rendered, count: tokenIds.length }
}

/** The text of token ids, special ones spelled out. */
function spell(model: CompletionModel, tokenIds: readonly number[]): string {
  const { pieces } = model.text.tokenizer
  const [first = new Uint8Array(0), ...rest] = tokenIds.map((tokenId, index) =>
    index === 0 ? pieces.firstBytesOf(tokenId) : pieces.bytesOf(tokenId),
  )
  return Buffer.concat([first, ...rest]).toString('utf8')
}

/** An empty prompt starts a new document. */
function freshDocument(model: CompletionModel): number {
  const tokenId = model.text.documentStartTokenId
  if (tokenId === undefined) {
    throw failure.invalidRequest("Invalid 'prompt': this model needs at least one token.", {
      param: 'prompt',
    })
  }
  return tokenId
}

/** The refusal of a prompt that leaves no room, in the wording that clients look for. */
export function contextLengthExceeded(
  { form }: Prompt,
  numbers: {
    readonly contextLength: number
    readonly count: number
    readonly maxTokens: number | null
  },
): Error {
  const { contextLength, count, maxTokens } = numbers
  const requested = count + (maxTokens ?? 0)
  const code = 'context_length_exceeded'
  if (form !== 'chat') {
    return failure.invalidRequest(
      `This model's maximum context length is ${contextLength} tokens, however you requested ` +
        `${requested} tokens (${count} in your prompt; ${maxTokens ?? 0} for the completion). ` +
        'Please reduce your prompt; or completion length.',
      { code, param: form === 'edit' ? 'input' : 'prompt' },
    )
  }
  const maximum = `This model's maximum context length is ${contextLength} tokens. However, `
  const message =
    maxTokens === null
      ? `your messages resulted in ${count} tokens. Please reduce the length of the messages.`
      : `you requested ${requested} tokens (${count} in the messages, ${maxTokens} in the ` +
        'completion). Please reduce the length of the messages or completion.'
  return failure.invalidRequest(maximum + message, { code, param: 'messages' })
}
