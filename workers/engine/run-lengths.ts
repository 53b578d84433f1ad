import { ModelRunError } from '#workers/runtime/errors.ts'

import type { ModelRunner, StepLogits } from './model-runner.ts'
import { areClose } from './rewrite/compare-text.ts'
import { Sequence, SlotTable } from './slots.ts'

/**
 * The run lengths with which a graph with states may compute a text: `any` length, the `whole`
 * prompt in one run followed by single tokens, or only `single` tokens.
 */
export type RunLengths = 'any' | 'whole' | 'single'

/** Lengths of runs that compute one text. */
const SINGLE = [1, 1, 1, 1]
const WHOLE = [3, 1] // the last run reads the state that a longer run returns
const PARTS = [2, 2] // the last run starts with that state and is longer itself

/** The share of the range of logits by which equal results may differ because of rounding. */
const TOLERANCE = 0.02

/**
 * Measures which run lengths give the same logits. Exporters write state spaces for one token only,
 * or ignore the state that a longer run starts with. Throws if single tokens fail.
 */
export async function findRunLengths(
  runner: ModelRunner,
  { vocabSize, isExact }: { readonly vocabSize: number; readonly isExact: boolean },
): Promise<RunLengths> {
  const single = await computeText(runner, SINGLE, vocabSize)
  const isEqual = async (lengths: readonly number[]): Promise<boolean> => {
    try {
      const logits = await computeText(runner, lengths, vocabSize)
      return !isExact || areClose(single, logits, TOLERANCE)
    } catch (error) {
      if (error instanceof ModelRunError) return false
      throw error
    }
  }
  if (!(await isEqual(WHOLE))) return 'single'
  return (await isEqual(PARTS)) ? 'any' : 'whole'
}

/** Runs a prompt and a single token. Throws `ModelRunError` for graphs that load but cannot run. */
export async function tryRuns(runner: ModelRunner, vocabSize: number): Promise<void> {
  await computeText(runner, WHOLE, vocabSize)
}

/** The logits after a text of four tokens that is computed in runs of the given lengths. */
async function computeText(
  runner: ModelRunner,
  lengths: readonly number[],
  vocabSize: number,
): Promise<Float32Array> {
  const slots = new SlotTable({ slots: 1, contextLength: SINGLE.length, reusesPrefixes: false })
  const sequence = makeSequence(vocabSize)
  slots.assign(sequence, { slot: 0, source: -1, prefixLength: 0 })
  let logits: StepLogits | undefined
  for (const count of lengths) {
    const isDecoded = count === 1 && sequence.numComputed > 0
    logits = isDecoded
      ? await runner.run({ kind: 'decode', sequences: [sequence] }, slots)
      : await runner.run({ kind: 'prefill', sequence, count }, slots)
    sequence.numComputed += count
  }
  return logits === undefined ? new Float32Array() : logits.row(logits.numRows - 1).slice()
}

function makeSequence(vocabSize: number): Sequence {
  const promptTokenIds = SINGLE.map((_, index) => Math.floor(((index + 1) * vocabSize) / 6))
  const request = {
    promptTokenIds,
    generatedTokenIds: [],
    maxNewTokens: 1,
    cacheScope: '',
    sampler: { next: () => ({ tokenId: 0 }) },
    endTokenIds: new Set<number>(),
    onToken: () => false,
  }
  return new Sequence(
    request,
    () => undefined,
    () => undefined,
  )
}
