import type { TrainingExample } from '#shared/contracts/training.ts'
import { failure } from '#shared/errors.ts'
import { WorkBudget } from '#workers/preparation/work-budget.ts'
import { type PromptSource, readPromptSource, type TextModel } from '#workers/text/text-model.ts'

/** An example as tokens. */
export interface TokenizedExample {
  readonly tokenIds: readonly number[]
  /** Whether the model learns to predict the token from those before it. */
  readonly isTarget: readonly boolean[]
}

/** Texts longer than this many contexts are refused instead of truncated. */
const CONTEXTS_MAX = 16

/**
 * The tokens of an example, cut to a length. Targets are the assistant's messages up to their end
 * token, or the completion and an end token.
 */
export async function tokenizeExample(
  text: TextModel,
  example: TrainingExample,
  { line, tokensMax }: { readonly line: number; readonly tokensMax: number },
): Promise<{ readonly example: TokenizedExample; readonly isTruncated: boolean }> {
  const read = async (source: PromptSource, addSpecialTokens: boolean): Promise<number[]> => {
    const limit = CONTEXTS_MAX * tokensMax
    const options = { addSpecialTokens, tokensMax: limit, budget: new WorkBudget() }
    const { tokenIds, count } = await readPromptSource(text, source, options)
    if (tokenIds !== undefined) return [...tokenIds]
    throw failure.invalidRequest(
      `Line ${line} of the training file has about ${count} tokens, more than ${limit}.`,
      { param: 'training_file', code: 'example_too_long' },
    )
  }
  const whole =
    'messages' in example
      ? await readChat(text, example, read)
      : await readPair(text, example, read)
  const isTruncated = whole.tokenIds.length > tokensMax
  return {
    isTruncated,
    example: {
      tokenIds: whole.tokenIds.slice(0, tokensMax),
      isTarget: whole.isTarget.slice(0, tokensMax),
    },
  }
}

type Read = (source: PromptSource, addSpecialTokens: boolean) => Promise<number[]>

async function readPair(
  { endTokenIds }: TextModel,
  { prompt, completion }: Extract<TrainingExample, { readonly prompt: string }>,
  read: Read,
): Promise<TokenizedExample> {
  const given = await read({ form: 'text', text: prompt }, true)
  const wanted = await read({ form: 'text', text: completion }, false)
  const [end] = endTokenIds
  const tokenIds = [...given, ...wanted, ...(end === undefined ? [] : [end])]
  return { tokenIds, isTarget: tokenIds.map((_, index) => index >= Math.max(given.length, 1)) }
}

/**
 * A message begins where the chat before it, opened for an answer, ends. The template renders both,
 * because only it knows the text around a message.
 */
async function readChat(
  { endTokenIds }: TextModel,
  { messages, tools = [] }: Extract<TrainingExample, { readonly messages: unknown }>,
  read: Read,
): Promise<TokenizedExample> {
  const render = (count: number, opensAnswer: boolean): Promise<number[]> => {
    const shown = messages.slice(0, count)
    return read({ form: 'chat', messages: shown, tools, template: { opensAnswer } }, false)
  }
  const tokenIds = await render(messages.length, false)
  const isTarget = tokenIds.map(() => false)
  for (const [index, { role, weight = 1 }] of messages.entries()) {
    if (role !== 'assistant' || weight === 0) continue
    const start = sharedLength(tokenIds, index === 0 ? [] : await render(index, true))
    const isLast = index === messages.length - 1
    const end = isLast ? tokenIds.length : sharedLength(tokenIds, await render(index + 1, false))
    const last = tokenIds.findLastIndex((id, at) => at >= start && at < end && endTokenIds.has(id))
    isTarget.fill(true, Math.max(start, 1), last < 0 ? end : last + 1)
  }
  return { tokenIds, isTarget }
}

/** How many leading tokens two texts share. */
function sharedLength(a: readonly number[], b: readonly number[]): number {
  const differs = a.findIndex((id, index) => id !== b[index])
  return differs < 0 ? a.length : differs
}
