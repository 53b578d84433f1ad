import { getTaskModel, type ModelDirectory } from '#api/inference/model-route.ts'
import type { Caller } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { ClassifyInput } from '#shared/contracts/embedding.ts'

/** Texts of one request. */
export const TEXTS_MAX = 1000

/** The job that classifies texts. Throws unless its model classifies. */
export async function classifyingJob(
  models: ModelDirectory,
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
  } & Pick<ClassifyInput, 'texts' | 'excess'>,
): Promise<{ readonly model: CatalogueModel; readonly input: ClassifyInput }> {
  const model = await getTaskModel(models, caller, { name: modelName, task: 'classify', endpoint })
  return { model, input: { task: 'classify', ...input } }
}
