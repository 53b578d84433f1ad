import type { TrainingProgress } from '#shared/contracts/training.ts'

import { batchesOf, type LayoutLimits, layOut, numTargets } from './batches.ts'
import type { TokenizedExample } from './examples.ts'
import type { LossModel } from './loss-model.ts'
import { type AdamW, learningRateAt } from './optimizer.ts'
import { replayOf } from './replay.ts'

/** Hyperparameters that were all decided. */
export interface Settings {
  readonly epochs: number
  readonly batchSize: number
  /** At the end of the warm-up. */
  readonly learningRate: number
  readonly rank: number
  readonly alpha: number
}

/** The phases of a training. */
interface Plan {
  readonly settings: Settings
  readonly seed: number
  readonly examples: readonly TokenizedExample[]
  readonly validation: readonly TokenizedExample[]
  /** Examples of what the model can do already; see `replayOf`. */
  readonly replay: readonly TokenizedExample[]
  readonly limits: LayoutLimits
}

/** The state of a training besides the elements and the moments of its optimizer. */
export interface Reached {
  trainedTokens: number
  /** The loss of the last step. */
  trainLoss: number
  validationLoss: number | null
  /** The elements with the lowest validation loss. */
  best: { readonly step: number; readonly loss: number; readonly elements: Float32Array } | null
  /** Epochs in a row whose validation loss was not the lowest. */
  staleEpochs: number
}

/** One step, or the end of an epoch. */
type Event = TrainingProgress & { readonly isEpochEnd: boolean }

/** Epochs without a better validation loss after which a training ends. */
const STALE_EPOCHS_MAX = 2

/** Steps of a whole training. */
export function numSteps({ examples, settings }: Pick<Plan, 'examples' | 'settings'>): number {
  return Math.ceil(examples.length / settings.batchSize) * settings.epochs
}

/**
 * Trains from the step that the optimizer has reached. The elements are those of that step whenever
 * the generator is suspended. Every number follows from the plan: a training that continues from a
 * stored step has the losses of one that was not interrupted.
 */
export async function* train(
  plan: Plan,
  state: { readonly model: LossModel; readonly optimizer: AdamW; readonly reached: Reached },
  tools: { readonly signal: AbortSignal; readonly yieldNow: () => Promise<void> },
): AsyncGenerator<Event> {
  const { settings, seed, examples, validation } = plan
  const { optimizer, reached } = state
  const steps = numSteps(plan)
  const { batchSize } = settings
  const perEpoch = steps / settings.epochs
  let order: { epoch: number; batches: readonly (readonly TokenizedExample[])[] } | undefined
  while (optimizer.steps < steps && reached.staleEpochs < STALE_EPOCHS_MAX) {
    const step = optimizer.steps
    const epoch = Math.floor(step / perEpoch)
    if (order?.epoch !== epoch) {
      order = { epoch, batches: batchesOf(examples, { seed, epoch, batchSize }) }
    }
    const batch = order.batches[step % perEpoch] ?? []
    const learningRate = learningRateAt(step, steps, settings.learningRate)
    const replayed = replayOf(plan.replay, { seed, step, batchSize })
    const sums = await accumulate(plan, { batch, replayed }, { ...state, ...tools })
    await optimizer.step(sums.gradients, learningRate, tools.yieldNow)
    reached.trainedTokens += sums.tokens
    reached.trainLoss = sums.loss
    const isEpochEnd = (step + 1) % perEpoch === 0
    const isMeasured = isEpochEnd && validation.length > 0
    if (isMeasured) await measure(plan, state, tools)
    yield {
      step: step + 1,
      steps,
      learningRate,
      isEpochEnd,
      trainLoss: sums.loss,
      meanTokenAccuracy: sums.accuracy,
      trainedTokens: reached.trainedTokens,
      ...(isMeasured &&
        reached.validationLoss !== null && { validationLoss: reached.validationLoss }),
    }
  }
}

/**
 * The gradients of a step: the sum of those of its runs. The mean losses of the examples and of the
 * replayed ones weigh the same; loss and accuracy are those of the examples.
 */
async function accumulate(
  { limits }: Plan,
  {
    batch,
    replayed,
  }: {
    readonly batch: readonly TokenizedExample[]
    readonly replayed: readonly TokenizedExample[]
  },
  {
    model,
    signal,
    yieldNow,
  }: {
    readonly model: LossModel
    readonly signal: AbortSignal
    readonly yieldNow: () => Promise<void>
  },
) {
  const runs = [batch, replayed].flatMap((examples) => {
    const weight = 1 / countTargets(examples)
    return layOut(examples, limits).map((layout) => ({ layout, weight, examples }))
  })
  let loss = 0
  let correct = 0
  let total: Float32Array | undefined
  for (const [index, { layout, weight, examples }] of runs.entries()) {
    const sums = await model.differentiate(layout, { weight, signal })
    if (examples === batch) {
      loss += sums.loss
      correct += sums.correct * weight
    }
    if (runs.length > 1) total = added(total, model.gradients)
    if (index < runs.length - 1) await yieldNow()
  }
  const tokens = batch.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0)
  return { gradients: total ?? model.gradients, loss, accuracy: correct, tokens }
}

function countTargets(examples: readonly TokenizedExample[]): number {
  return examples.reduce((sum, example) => sum + numTargets(example), 0)
}

function added(total: Float32Array | undefined, part: Float32Array): Float32Array {
  if (total === undefined) return Float32Array.from(part)
  for (let index = 0; index < part.length; index += 1) {
    total[index] = (total[index] as number) + (part[index] as number)
  }
  return total
}

/** Measures the validation loss and notes whether it is the lowest so far. */
async function measure(
  { validation, limits }: Plan,
  {
    model,
    optimizer,
    reached,
  }: { readonly model: LossModel; readonly optimizer: AdamW; readonly reached: Reached },
  { signal, yieldNow }: { readonly signal: AbortSignal; readonly yieldNow: () => Promise<void> },
): Promise<void> {
  const targets = countTargets(validation)
  let loss = 0
  for (const layout of layOut(validation, limits)) {
    loss += (await model.evaluate(layout, { weight: 1 / targets, signal })).loss
    await yieldNow()
  }
  reached.validationLoss = loss
  if (reached.best === null || loss < reached.best.loss) {
    reached.best = { step: optimizer.steps, loss, elements: Float32Array.from(optimizer.elements) }
    reached.staleEpochs = 0
  } else reached.staleEpochs += 1
}
