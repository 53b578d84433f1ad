import type { Hyperparameters, TrainingInput } from '#shared/contracts/training.ts'
import type { LinearModule } from '#workers/adapters/target-modules.ts'

import type { TokenizedExample } from './examples.ts'
import type { Settings } from './trainer.ts'

const RANK = 16
/** A model of this width trains well at this rate; the best rate falls with the width. */
const REFERENCE = { width: 2048, learningRate: 2e-4 }
const LEARNING_RATE_MAX = 3e-3

/** The rank and scale of an adapter, which are decided before the graph is made. */
export function settleRank({ rank, alpha }: Hyperparameters): { rank: number; alpha: number } {
  const settled = rank ?? RANK
  return { rank: settled, alpha: alpha ?? 2 * settled }
}

/** Decides the hyperparameters that the job leaves open, from the examples and the model. */
export function settle(
  { hyperparameters, epochsMax }: Pick<TrainingInput, 'hyperparameters' | 'epochsMax'>,
  examples: readonly TokenizedExample[],
  modules: readonly LinearModule[],
): Settings {
  const { length } = examples
  const width = Math.min(...modules.map(({ inSize }) => inSize))
  const natural = (REFERENCE.learningRate * REFERENCE.width) / width
  const { epochs, batchSize, learningRateMultiplier } = hyperparameters
  return {
    ...settleRank(hyperparameters),
    batchSize: batchSize ?? Math.min(Math.max(Math.ceil(length / 64), 4), 32),
    // Few examples are seen more often.
    epochs: epochs ?? Math.min(Math.max(Math.ceil(9600 / length), 3), 20, epochsMax),
    learningRate: Math.min(natural, LEARNING_RATE_MAX) * (learningRateMultiplier ?? 1),
  }
}
