import { type AnswerParser, answerParser } from '#api/inference/answers/answer-parser.ts'
import {
  type AnswerHead,
  type PresentedUsage,
  presentPromptLogprobs,
  presentUsage,
  returnedIds,
} from '#api/inference/completions/completion-answer.ts'
import { DONE, obfuscation, type StreamPresenter, StreamUsage } from '#api/inference/generate.ts'
import type { StreamChoice } from '#api/inference/sampling-fields.ts'
import type { PriorityClass } from '#api/jobs/observers.ts'
import { derivedId } from '#api/v1/request-context.ts'
import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'
import { callFormat } from '#shared/contracts/call-formats.ts'
import type {
  Candidate,
  CandidateDelta,
  FinishReason,
  GenerateInput,
  PromptLogprobs,
  TokenLogprob,
} from '#shared/contracts/completion.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { presentChatLogprobs } from './chat-logprobs.ts'
import type { AnswerPart } from './chat-tool-calls.ts'
import type { ToolPlan } from './chat-tools.ts'

/** The fields shared by all chunks and answers of one chat request. */
export interface ChatHead extends AnswerHead {
  readonly serviceTier: PriorityClass
  /**
   * The text that the request prefills and wants repeated in each answer; empty if there is none.
   */
  readonly echoed: string
  readonly showsReasoning: boolean
}

type ChatFinishReason = 'stop' | 'length' | 'tool_calls' | 'function_call'

interface PresentedFunction {
  readonly name: string
  readonly arguments: string
}

/** A call of a function, or of a custom tool with its input. */
type PresentedCall =
  | { readonly type: 'function'; readonly function: PresentedFunction }
  | { readonly type: 'custom'; readonly custom: { readonly name: string; readonly input: string } }

/** A call after parsing: its text is the arguments, or the input of a custom tool. */
interface ReadCall {
  readonly name: string
  readonly isCustom: boolean
  text: string
}

interface ChatAnswerMessage {
  readonly role: 'assistant'
  readonly content: string | null
  /** The reasoning before the answer, for models that mark it; null if there is none. */
  readonly reasoning_content?: string | null
  /** The same, under its name in vLLM and OpenRouter. */
  readonly reasoning?: string | null
  readonly refusal: null
  readonly annotations: readonly never[]
  readonly tool_calls?: readonly ({ readonly id: string } & PresentedCall)[]
  readonly function_call?: PresentedFunction
}

/** The answer to a chat request that is not a stream. */
interface ChatAnswer {
  readonly id: string
  readonly object: 'chat.completion'
  readonly created: number
  readonly model: string
  readonly choices: readonly {
    readonly index: number
    readonly message: ChatAnswerMessage
    readonly logprobs: ReturnType<typeof presentChatLogprobs> | null
    readonly finish_reason: ChatFinishReason
    readonly token_ids?: readonly number[]
  }[]
  readonly prompt_token_ids?: readonly number[]
  readonly prompt_logprobs?: ReturnType<typeof presentPromptLogprobs>['prompt_logprobs']
  readonly usage: PresentedUsage
  readonly service_tier: PriorityClass
  readonly system_fingerprint: string
}

/** Presents all candidates of a finished chat, in the order of their indexes. */
export function presentChat(
  head: ChatHead,
  tools: ToolPlan | undefined,
  outcome: {
    readonly candidates: readonly Candidate[]
    readonly usage: TokenUsage
    readonly promptTokenIds?: readonly (readonly number[])[]
    readonly promptLogprobs?: readonly PromptLogprobs[]
    readonly dialect?: AnswerDialect
  },
): ChatAnswer {
  const [promptTokenIds] = outcome.promptTokenIds ?? []
  return {
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    choices: outcome.candidates
      .toSorted((one, other) => one.index - other.index)
      .map((candidate) => {
        const {
          content: written,
          reasoning,
          calls,
        } = readAnswer(candidate.text, tools, outcome.dialect)
        const content = head.echoed + written
        return {
          index: candidate.index,
          message: presentMessage(content, {
            calls,
            reasoning: head.showsReasoning && reasoning !== '' ? reasoning : null,
            tools,
            dialect: outcome.dialect,
            source: `${head.id} ${candidate.index}`,
          }),
          logprobs:
            candidate.logprobs === undefined ? null : presentChatLogprobs(candidate.logprobs),
          finish_reason: finishReason(candidate.finishReason, calls.length, tools),
          ...(promptTokenIds !== undefined && { token_ids: returnedIds(candidate) }),
        }
      }),
    ...(promptTokenIds !== undefined && { prompt_token_ids: promptTokenIds }),
    ...presentPromptLogprobs(outcome.promptLogprobs?.[0]),
    usage: presentUsage(outcome.usage),
    service_tier: head.serviceTier,
    system_fingerprint: head.systemFingerprint,
  }
}

/** Why a candidate ended: `tool_calls` for calls, unless one function was demanded by name. */
export function finishReason(
  reason: FinishReason,
  callCount: number,
  tools: ToolPlan | undefined,
): ChatFinishReason {
  if (reason === 'length') return 'length'
  if (callCount === 0 || typeof tools?.choice === 'object') return 'stop'
  return tools?.isLegacy === true ? 'function_call' : 'tool_calls'
}

/** The id of a tool call of a candidate, named by the answer's id and its index. */
export function toolCallId(source: string, index: number, dialect?: AnswerDialect): string {
  const { idLength } = callFormat(dialect?.calls)
  const id = derivedId('call_', `${source} ${index}`)
  // Some chat templates only accept ids of one length.
  return idLength === undefined ? id : id.replace(/[^A-Za-z0-9]/g, '').slice(-idLength)
}

function readAnswer(
  text: string,
  tools: ToolPlan | undefined,
  dialect: AnswerDialect | undefined,
): { content: string; reasoning: string; calls: ReadCall[] } {
  const parser = answerParser(tools, dialect)
  if (parser === undefined) return { content: text, reasoning: '', calls: [] }
  let content = ''
  let reasoning = ''
  const calls: ReadCall[] = []
  for (const part of [...parser.push(text), ...parser.finish()]) {
    if (part.type === 'content') content += part.text
    else if (part.type === 'reasoning') reasoning += part.text
    else if (part.type === 'callStart') {
      calls.push({ name: part.name, isCustom: part.isCustom === true, text: '' })
    } else (calls[part.index] as ReadCall).text += part.text
  }
  return { content, reasoning, calls }
}

function presentMessage(
  content: string,
  answer: {
    readonly calls: readonly ReadCall[]
    readonly reasoning: string | null
    readonly dialect: AnswerDialect | undefined
    readonly tools: ToolPlan | undefined
    readonly source: string
  },
): ChatAnswerMessage {
  const { calls, tools, source, reasoning, dialect } = answer
  const message = {
    ...({ role: 'assistant', refusal: null, annotations: [] } as const),
    ...(dialect?.reasoning !== undefined && { reasoning_content: reasoning, reasoning }),
  }
  const [first] = calls
  if (first === undefined) return { ...message, content }
  const spoken = content === '' ? null : content
  if (tools?.isLegacy === true) {
    const call = { name: first.name, arguments: first.text }
    return { ...message, content: spoken, function_call: call }
  }
  return {
    ...message,
    content: spoken,
    tool_calls: calls.map((call, index) => ({
      id: toolCallId(source, index, dialect),
      ...presentCall(call),
    })),
  }
}

function presentCall({ name, isCustom, text }: ReadCall): PresentedCall {
  return isCustom
    ? { type: 'custom', custom: { name, input: text } }
    : { type: 'function', function: { name, arguments: text } }
}

/** Writes the chunks of a streamed chat. */
export function chatPresenter(
  head: ChatHead,
  request: { readonly input: GenerateInput; readonly tools: ToolPlan | undefined },
  choice: StreamChoice,
): StreamPresenter {
  // Built once: a chunk is this prefix, the delta and a few varying fields.
  const prefix = `data: ${JSON.stringify({
    id: head.id,
    object: 'chat.completion.chunk',
    created: head.created,
    model: head.model,
    service_tier: head.serviceTier,
    system_fingerprint: head.systemFingerprint,
  }).slice(0, -1)},"choices":[`
  const opening = JSON.stringify({ role: 'assistant', content: head.echoed, refusal: null })
  const usage = new StreamUsage(choice)
  let ids: readonly number[] | undefined
  const write: WriteChunk = (index, delta, logprobs, reason, ownIds = '') =>
    `${prefix}{"index":${index},${ownIds}"delta":${delta},"logprobs":${logprobs},"finish_reason":${reason}}${usage.suffix()}${obfuscation(choice)}}\n\n`
  let candidates = openCandidates(undefined)
  return {
    started(promptTokens, { promptTokenIds, dialect } = {}) {
      usage.started(promptTokens)
      ids = promptTokenIds?.[0]
      if (dialect !== undefined) candidates = openCandidates(dialect)
    },
    // The ids of the prompt are a field of the chunk, before its choices.
    opening: () =>
      candidates
        .map((_, index) => write(index, opening, 'null', 'null'))
        .join('')
        .replace('"choices":[', () => `${idsField('prompt_token_ids', ids)}"choices":[`),
    deltas: (deltas) =>
      deltas
        .map((delta) => {
          usage.add(delta)
          return candidates[delta.index]?.present(delta) ?? ''
        })
        .join(''),
    ending: (total: TokenUsage) =>
      choice.includesUsage
        ? `${prefix}],"usage":${JSON.stringify(presentUsage(total))}}\n\n${DONE}`
        : DONE,
  }

  function openCandidates(dialect: AnswerDialect | undefined): readonly CandidateWriter[] {
    return Array.from({ length: request.input.n }, (_, index) => {
      return new CandidateWriter({ ...head, index, dialect }, request, write)
    })
  }
}

function idsField(name: string, ids: readonly number[] | undefined): string {
  return ids === undefined ? '' : `"${name}":${JSON.stringify(ids)},`
}

type WriteChunk = (
  index: number,
  delta: string,
  logprobs: string,
  reason: string,
  ownIds?: string,
) => string

/** Writes the chunks of one candidate. */
class CandidateWriter {
  readonly #index: number
  readonly #showsReasoning: boolean
  /** The seed of the ids of its tool calls. */
  readonly #source: string
  readonly #tools: ToolPlan | undefined
  readonly #write: WriteChunk
  readonly #dialect: AnswerDialect | undefined
  readonly #parser: AnswerParser | undefined
  /** Tokens that no chunk has contained yet; undefined where they are not returned. */
  #tokenIds: number[] | undefined
  // Log-probabilities of text that the parser withholds; they are sent with the next chunk.
  #logprobs: TokenLogprob[] = []

  constructor(
    place: Pick<ChatHead, 'id' | 'showsReasoning'> & {
      readonly index: number
      readonly dialect: AnswerDialect | undefined
    },
    { input, tools }: { readonly input: GenerateInput; readonly tools: ToolPlan | undefined },
    write: WriteChunk,
  ) {
    if (input.returnsPromptTokens === true) this.#tokenIds = []
    this.#index = place.index
    this.#showsReasoning = place.showsReasoning
    this.#source = `${place.id} ${place.index}`
    this.#tools = tools
    this.#write = write
    this.#dialect = place.dialect
    this.#parser = answerParser(tools, place.dialect)
  }

  present(delta: CandidateDelta): string {
    for (const logprob of delta.logprobs ?? []) this.#logprobs.push(logprob)
    this.#tokenIds?.push(...returnedIds(delta))
    let chunks = ''
    for (const part of this.#partsOf(delta)) {
      if (part.type === 'reasoning' && !this.#showsReasoning) continue
      chunks += this.#chunk(this.#deltaOf(part))
    }
    if (delta.finishReason !== undefined) chunks += this.#ending(delta.finishReason)
    return chunks
  }

  #partsOf(delta: CandidateDelta): readonly AnswerPart[] {
    if (this.#parser === undefined) {
      return delta.text === '' ? [] : [{ type: 'content', text: delta.text }]
    }
    const parts = this.#parser.push(delta.text)
    return delta.finishReason === undefined ? parts : [...parts, ...this.#parser.finish()]
  }

  #deltaOf(part: AnswerPart): string {
    if (part.type === 'content') return `{"content":${JSON.stringify(part.text)}}`
    if (part.type === 'reasoning') {
      return JSON.stringify({ reasoning_content: part.text, reasoning: part.text })
    }
    const { index, isCustom = false } = part
    const kind = isCustom ? 'custom' : 'function'
    const field = isCustom ? 'input' : 'arguments'
    const piece =
      part.type === 'callStart' ? { name: part.name, [field]: '' } : { [field]: part.text }
    if (this.#tools?.isLegacy === true) return JSON.stringify({ function_call: piece })
    const opening =
      part.type === 'callStart'
        ? { id: toolCallId(this.#source, index, this.#dialect), type: kind }
        : {}
    return JSON.stringify({ tool_calls: [{ index, ...opening, [kind]: piece }] })
  }

  #chunk(delta: string): string {
    return this.#write(this.#index, delta, this.#takeLogprobs(), 'null', this.#takeIds())
  }

  #ending(reason: FinishReason): string {
    const presented = finishReason(reason, this.#parser?.callCount ?? 0, this.#tools)
    return this.#write(this.#index, '{}', this.#takeLogprobs(), `"${presented}"`, this.#takeIds())
  }

  #takeIds(): string {
    const ids = this.#tokenIds
    if (ids !== undefined) this.#tokenIds = []
    return idsField('token_ids', ids)
  }

  #takeLogprobs(): string {
    if (this.#logprobs.length === 0) return 'null'
    const presented = JSON.stringify(presentChatLogprobs(this.#logprobs))
    this.#logprobs = []
    return presented
  }
}
