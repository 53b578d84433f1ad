import { type AnswerParser, answerParser } from '#api/inference/answers/answer-parser.ts'
import { presentUsage } from '#api/inference/completions/completion-answer.ts'
import { DONE, obfuscation, type StreamPresenter } from '#api/inference/event-stream-answer.ts'
import type { StreamChoice } from '#api/inference/sampling-fields.ts'
import { StreamUsage } from '#api/inference/stream-usage.ts'
import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'
import type {
  CandidateDelta,
  FinishReason,
  GenerateInput,
  TokenLogprob,
} from '#shared/contracts/completion.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { type ChatHead, finishReason, presentChatLogprobs, toolCallId } from './chat-answer.ts'
import type { AnswerPart } from './chat-tool-calls.ts'
import type { ToolPlan } from './chat-tools.ts'

/** Writes the chunks of a streamed chat. */
export function chatPresenter(
  head: ChatHead,
  request: { readonly input: GenerateInput; readonly tools: ToolPlan | undefined },
  choice: StreamChoice,
): StreamPresenter {
  // Written once: a chunk is this, the delta and the little that differs.
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
      return new CandidateWriter({ index, answerId: head.id, dialect }, request, write)
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
  /** The seed of the ids of its tool calls. */
  readonly #source: string
  readonly #tools: ToolPlan | undefined
  readonly #write: WriteChunk
  readonly #dialect: AnswerDialect | undefined
  readonly #parser: AnswerParser | undefined
  /** Tokens that no chunk has yet; undefined where they are not returned. */
  #tokenIds: number[] | undefined
  // Of text that the parser withholds: sent with the next chunk.
  #logprobs: TokenLogprob[] = []

  constructor(
    place: {
      readonly index: number
      readonly answerId: string
      readonly dialect: AnswerDialect | undefined
    },
    { input, tools }: { readonly input: GenerateInput; readonly tools: ToolPlan | undefined },
    write: WriteChunk,
  ) {
    if (input.returnsPromptTokens === true) this.#tokenIds = []
    this.#index = place.index
    this.#source = `${place.answerId} ${place.index}`
    this.#tools = tools
    this.#write = write
    this.#dialect = place.dialect
    this.#parser = answerParser(tools, place.dialect)
  }

  present(delta: CandidateDelta): string {
    for (const logprob of delta.logprobs ?? []) this.#logprobs.push(logprob)
    this.#tokenIds?.push(...delta.tokenIds)
    let chunks = ''
    for (const part of this.#partsOf(delta)) chunks += this.#chunk(this.#deltaOf(part))
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
    if (part.type === 'reasoning') return `{"reasoning_content":${JSON.stringify(part.text)}}`
    const piece =
      part.type === 'callStart' ? { name: part.name, arguments: '' } : { arguments: part.text }
    if (this.#tools?.isLegacy === true) return JSON.stringify({ function_call: piece })
    const opening =
      part.type === 'callStart'
        ? { id: toolCallId(this.#source, part.index, this.#dialect), type: 'function' }
        : {}
    return JSON.stringify({ tool_calls: [{ index: part.index, ...opening, function: piece }] })
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
