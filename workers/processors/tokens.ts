import type { DetokenizeInput, TokenizeInput } from '#shared/contracts/completion.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'

import type { CompletionModel } from './completion-model.ts'
import { contextLengthExceeded, readPrompt, readTokenIds } from './completion-prompt.ts'
import type { JobTools } from './processor-row.ts'

// The model does not run, so no token is charged.
const NOTHING = { promptTokens: 0, completionTokens: 0, cachedTokens: 0 }

/** Tokenizes or detokenizes a text. */
export async function processTokens(
  job: JobEnvelope<'completion'>,
  input: TokenizeInput | DetokenizeInput,
  { model, reply, clock, signal }: JobTools<CompletionModel, 'completion'>,
): Promise<void> {
  const startedAt = clock.monotonic()
  const queueMs = Math.max(clock.now() - job.enqueuedAtMs, 0)
  reply.started(0)
  const result =
    input.task === 'tokenize'
      ? await tokenize(model, input, signal)
      : {
          task: 'detokenize' as const,
          text: readTokenIds(model, input.tokenIds, 'tokens').rendered.text,
        }
  reply.result(result, NOTHING, { queueMs, prepareMs: 0, runMs: clock.monotonic() - startedAt })
}

async function tokenize(model: CompletionModel, input: TokenizeInput, signal: AbortSignal) {
  const { contextLength } = model.engine
  const { prompt, addSpecialTokens, withTexts } = input
  const { tokenIds, count } = await readPrompt(model, prompt, { addSpecialTokens, signal })
  if (tokenIds === undefined) {
    throw contextLengthExceeded(prompt, { contextLength, count, maxTokens: null })
  }
  const { pieces } = model.text.tokenizer
  return {
    task: 'tokenize' as const,
    tokenIds,
    contextLength,
    ...(withTexts && {
      texts: tokenIds.map((tokenId) => Buffer.from(pieces.bytesOf(tokenId)).toString('utf8')),
    }),
  }
}
