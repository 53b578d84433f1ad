import type { GenerateInput } from '#shared/contracts/completion.ts'
import type { SequenceRule } from '#workers/sampling/sampler.ts'
import { limitThinking } from '#workers/sampling/thinking-budget.ts'
import { allowOnly, banRepetition, banSequences, banStarts } from '#workers/sampling/token-rules.ts'
import { findThinkingTags, thinkingTokensMax } from '#workers/text/text-model.ts'

import type { CompletionModel } from './completion-model.ts'
import type { PreparedPrompt } from './completion-prompt.ts'

/** The rules of a request and of its model for the tokens of an answer. */
export function sequenceRules(
  text: CompletionModel['text'],
  answer: {
    readonly input: GenerateInput
    readonly prompt: PreparedPrompt
    readonly endTokenIds: ReadonlySet<number>
  },
): readonly SequenceRule[] {
  const { input, prompt, endTokenIds } = answer
  const { allowedTokenIds: allowed, badWords = [] } = input.tokenRules ?? {}
  const tokensMax = thinkingTokensMax(text, input.hints)
  const tags = findThinkingTags(text)
  const spellings = badWords.flatMap((word) => spellingsOf(text, word))
  const {
    bannedSequences = [],
    bannedStarts = [],
    repeatedSequenceLength = 0,
  } = text.generation ?? {}
  const banned = [...spellings, ...bannedSequences]
  const read = prompt.source?.startTokenIds ?? prompt.tokenIds
  return [
    ...(allowed === undefined ? [] : [allowOnly(new Set(allowed), endTokenIds)]),
    ...(banned.length === 0 ? [] : [banSequences(banned)]),
    ...(bannedStarts.length === 0 ? [] : [banStarts(bannedStarts)]),
    ...(repeatedSequenceLength === 0 ? [] : [banRepetition(repeatedSequenceLength, read)]),
    ...(tokensMax === undefined || tags === undefined
      ? []
      : [limitThinking({ tags, tokensMax, promptTokenIds: prompt.tokenIds })]),
  ]
}

/** The tokens of a word at the beginning of a text and after a space. */
function spellingsOf({ tokenizer }: CompletionModel['text'], word: string): number[][] {
  return [word, ` ${word.trimStart()}`].map((spelling) =>
    tokenizer.encode(spelling, { addSpecialTokens: false }),
  )
}
