import { type AnswerPart, ToolCallParser } from '#api/inference/chat/chat-tool-calls.ts'
import type { ToolPlan } from '#api/inference/chat/chat-tools.ts'
import { type AnswerDialect, reasoningFormat } from '#shared/contracts/answer-formats.ts'
import { callFormat } from '#shared/contracts/call-formats.ts'

import { CustomCallParser } from './custom-calls.ts'
import { HarmonyParser } from './harmony-parser.ts'
import { ReasoningParser } from './reasoning-parser.ts'

/** Separates reasoning, content and calls in the text of an answer, in chunks of any size. */
export interface AnswerParser {
  /** How many calls have been found. */
  readonly callCount: number
  push(text: string): AnswerPart[]
  finish(): AnswerPart[]
}

/** The parser for a model's answers; undefined where the whole answer is content. */
export function answerParser(
  tools: ToolPlan | undefined,
  dialect: AnswerDialect | undefined,
): AnswerParser | undefined {
  const parser = dialectParser(tools, dialect)
  const customNames = tools?.customNames
  return parser === undefined || customNames === undefined
    ? parser
    : new CustomCallParser(parser, customNames)
}

function dialectParser(
  tools: ToolPlan | undefined,
  dialect: AnswerDialect | undefined,
): AnswerParser | undefined {
  const isHarmony = dialect?.calls === 'harmony' || dialect?.reasoning === 'harmony'
  if (isHarmony) return new HarmonyParser({ callsMax: tools?.callsMax ?? 0 })
  const calls = callParser(tools, dialect)
  if (dialect?.reasoning === undefined) return calls
  const reasoning = new ReasoningParser(reasoningFormat(dialect.reasoning), {
    isOpen: dialect.beginsInReasoning === true,
  })
  return new ReasonedParser(reasoning, calls)
}

function callParser(
  tools: ToolPlan | undefined,
  dialect: AnswerDialect | undefined,
): ToolCallParser | undefined {
  if (tools === undefined || tools.choice === 'none') return undefined
  return new ToolCallParser({
    callsMax: tools.callsMax,
    isForced: tools.choice !== 'auto',
    format: callFormat(dialect?.calls),
    tools: tools.tools,
  })
}

/** Reasoning first, then content and calls. */
class ReasonedParser implements AnswerParser {
  readonly #reasoning: ReasoningParser
  readonly #calls: ToolCallParser | undefined

  constructor(reasoning: ReasoningParser, calls: ToolCallParser | undefined) {
    this.#reasoning = reasoning
    this.#calls = calls
  }

  get callCount(): number {
    return this.#calls?.callCount ?? 0
  }

  push(text: string): AnswerPart[] {
    return this.#reasoning.push(text).flatMap((part) => this.#read(part))
  }

  finish(): AnswerPart[] {
    const last = this.#reasoning.finish().flatMap((part) => this.#read(part))
    return [...last, ...(this.#calls?.finish() ?? [])]
  }

  #read({ isReasoning, text }: ReturnType<ReasoningParser['push']>[number]): AnswerPart[] {
    if (isReasoning) return [{ type: 'reasoning', text }]
    return this.#calls?.push(text) ?? [{ type: 'content', text }]
  }
}
