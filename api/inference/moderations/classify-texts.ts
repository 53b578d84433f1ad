import { getTaskModel, type ModelDirectory } from '#api/inference/model-route.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Caller } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import { type ClassifyInput, checkProbabilityCount } from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'

import { checkZeroShot } from './candidate-labels.ts'

const TEXTS_MAX = 1000

/** The catalogue, and the state of the workers. */
export type ClassifyServices = ModelDirectory & Pick<InferenceServices, 'workersSeen'>

/**
 * Refuses too many inputs before the validator reads them all. A list of numbers is one input; the
 * schema bounds its length.
 */
export function checkTextCount(body: unknown): void {
  const { input } = (body ?? {}) as { readonly input?: unknown }
  if (!Array.isArray(input) || typeof input[0] === 'number' || input.length <= TEXTS_MAX) return
  throw failure.invalidRequest(
    `Invalid 'input': array too long. Expected an array with maximum length ${TEXTS_MAX}, but got an array with length ${input.length} instead.`,
    { param: 'input', code: 'array_above_max_length' },
  )
}

/**
 * The job that classifies texts. Throws unless its model classifies, and for more probabilities
 * than one answer may have, as far as a live worker says how many labels the model has.
 */
export async function classifyingJob(
  services: ClassifyServices,
  caller: Caller,
  {
    modelName,
    endpoint,
    ...input
  }: {
    /** The first model that classifies, if absent. */
    readonly modelName: string | null | undefined
    /** As the client knows it, such as `v1/moderations`. */
    readonly endpoint: string
  } & Omit<ClassifyInput, 'task'>,
): Promise<{ readonly model: CatalogueModel; readonly input: ClassifyInput }> {
  const wanted: ClassifyInput = { task: 'classify', ...input }
  checkZeroShot(wanted)
  const need = { name: modelName, task: 'classify', endpoint } as const
  const model = await getTaskModel(services, caller, need)
  const queues = services.workersSeen().flatMap((worker) => worker.queues)
  const own = queues.find(({ modelId, labelCount }) => modelId === model.id && labelCount)
  checkProbabilityCount(wanted.items.length, own?.labelCount ?? 0)
  return { model, input: wanted }
}
