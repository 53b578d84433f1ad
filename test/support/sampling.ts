import type { SamplingParams } from '#shared/contracts/completion.ts'

/** Sampling parameters that change nothing; tests set the ones that they are about. */
export const NEUTRAL_SAMPLING: SamplingParams = {
  temperature: 1,
  topP: 1,
  topK: 0,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  logitBias: {},
  seed: 0,
}
