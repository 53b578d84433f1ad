import { DONE, obfuscation, type StreamPresenter, StreamUsage } from '#api/inference/generate.ts'
import type { StreamChoice } from '#api/inference/sampling-fields.ts'
import type { CandidateDelta, GenerateInput } from '#shared/contracts/completion.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { type AnswerHead, logprobsWriter, presentUsage, returnedIds } from './completion-answer.ts'
import type { LogprobsWriter } from './completion-logprobs.ts'

/** Writes the chunks of a streamed completion. */
export function completionPresenter(
  head: AnswerHead,
  input: GenerateInput,
  choice: StreamChoice,
): StreamPresenter {
  // Built once: a chunk is this prefix, the text and a few varying fields.
  const prefix = `data: ${JSON.stringify({
    id: head.id,
    object: 'text_completion',
    created: head.created,
    model: head.model,
    system_fingerprint: head.systemFingerprint,
  }).slice(0, -1)},"choices":[`
  const usage = new StreamUsage(choice)
  const writers = new Map<number, LogprobsWriter>()
  let prompts: readonly (readonly number[])[] | undefined
  const begun = new Set<number>()
  const chunk = (delta: CandidateDelta): string => {
    usage.add(delta)
    return `${prefix}{"text":${JSON.stringify(delta.text)},"index":${delta.index},${idsOf(delta)}"logprobs":${logprobsOf(delta)},"finish_reason":${finishReasonOf(delta)}}${usage.suffix()}${obfuscation(choice)}}\n\n`
  }
  return {
    started(promptTokens, { promptTokenIds } = {}) {
      usage.started(promptTokens)
      prompts = promptTokenIds
    },
    opening: () => '',
    deltas: (deltas) => deltas.map(chunk).join(''),
    ending: (total: TokenUsage) =>
      choice.includesUsage
        ? `${prefix}],"usage":${JSON.stringify(presentUsage(total))}}\n\n${DONE}`
        : DONE,
  }

  /** The ids of the prompt are in the first chunk of each answer. */
  function idsOf(delta: CandidateDelta): string {
    const { index } = delta
    if (input.returnsPromptTokens !== true) return ''
    const prompt = begun.has(index) ? undefined : prompts?.[Math.floor(index / input.n)]
    begun.add(index)
    const before = prompt === undefined ? '' : `"prompt_token_ids":${JSON.stringify(prompt)},`
    return `${before}"token_ids":${JSON.stringify(returnedIds(delta))},`
  }

  function logprobsOf(delta: CandidateDelta): string {
    if (delta.logprobs === undefined || input.logprobs === null) return 'null'
    let writer = writers.get(delta.index)
    if (writer === undefined) {
      writer = logprobsWriter(input, delta.index)
      writers.set(delta.index, writer)
    }
    return JSON.stringify(writer.present(delta.logprobs))
  }
}

function finishReasonOf(delta: CandidateDelta): string {
  if (delta.finishReason === undefined) return 'null'
  return delta.finishReason === 'length' ? '"length"' : '"stop"'
}
