import { invalidValue } from '#api/inference/field-schemas.ts'
import { getTaskModel, type ModelDirectory, readsOf } from '#api/inference/model-route.ts'
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
export function checkTextCount(body: unknown, param = 'input'): void {
  const { [param]: input } = (body ?? {}) as Readonly<Record<string, unknown>>
  if (!Array.isArray(input) || typeof input[0] === 'number' || input.length <= TEXTS_MAX) return
  throw failure.invalidRequest(
    `Invalid '${param}': array too long. Expected an array with maximum length ${TEXTS_MAX}, but got an array with length ${input.length} instead.`,
    { param, code: 'array_above_max_length' },
  )
}

/** A job that classifies. */
export interface ClassifyingJob {
  readonly model: CatalogueModel
  readonly input: ClassifyInput
}

/**
 * The job that classifies texts or images. Throws when the model does not classify these inputs, or
 * when the answer would have too many probabilities, if a live worker has reported the number of
 * labels.
 */
export async function classifyingJob(
  services: ClassifyServices,
  caller: Caller,
  {
    modelName,
    endpoint,
    reads = 'texts',
    ...input
  }: {
    readonly reads?: 'texts' | 'images'
    /** The first model that classifies them, if absent. */
    readonly modelName: string | null | undefined
    /** As the client knows it, such as `v1/moderations`. */
    readonly endpoint: string
  } & Omit<ClassifyInput, 'task'>,
): Promise<ClassifyingJob> {
  const wanted: ClassifyInput = { task: 'classify', ...input }
  checkZeroShot(wanted)
  const isNamed = modelName !== null && modelName !== undefined
  if (!isNamed && reads === 'images') requireClassifier(services, wanted)
  const need = { name: modelName, task: 'classify', reads, endpoint } as const
  const model = await getTaskModel(services, caller, need)
  if (readsOf(model) !== reads) throw readsOther(model)
  const queues = services.workersSeen().flatMap((worker) => worker.queues)
  const own = queues.find(({ modelId, labelCount }) => modelId === model.id && labelCount)
  checkProbabilityCount(wanted.items.length, own?.labelCount ?? 0)
  return { model, input: wanted }
}

function readsOther(model: CatalogueModel): Error {
  const reads = readsOf(model)
  const other = reads === 'images' ? 'texts' : 'images'
  return failure.invalidRequest(
    `Invalid 'input': the model \`${model.id}\` classifies ${reads}, not ${other}.`,
    { param: 'input', code: 'unsupported_value' },
  )
}

/** The error names images, because few installations have a classifier for them. */
function requireClassifier(
  { catalogue }: ClassifyServices,
  { items: [first] }: ClassifyInput,
): void {
  const can = (model: CatalogueModel): boolean =>
    model.capabilities.includes('classify') && readsOf(model) === 'images'
  if (catalogue.models.some(can)) return
  const path = typeof first === 'object' && 'path' in first ? first.path : 'input'
  throw invalidValue(path, 'no model of this server classifies images, only texts.')
}
