import { REASONING_FORMATS, type ReasoningFormat } from '#shared/contracts/answer-formats.ts'
import type { Hint } from '#shared/contracts/completion.ts'

import type { TextModel } from './text-model.ts'

/** The tokens between which a model reasons. */
interface ThinkingTags {
  readonly open: number
  readonly close: number
  /** The token before the opening one. */
  readonly after?: number
}

// Templates that read it write the effort into the prompt, and need no limit.
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

/** Tokens of reasoning at most; undefined for no limit. The first hint with a limit wins. */
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
