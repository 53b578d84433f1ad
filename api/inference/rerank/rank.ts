import { getTaskModel, type ModelDirectory } from '#api/inference/model-route.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { type Caller, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { RerankInput, TruncationSide } from '#shared/contracts/embedding.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

/** Documents of one request. */
export const DOCUMENTS_MAX = 1000

/** A query and its documents, in any dialect. */
export interface Ranking {
  /** The first model that ranks, if absent. */
  readonly modelName: string | null | undefined
  readonly query: string
  /** One for each document, instead of `query`. */
  readonly queries?: readonly string[]
  readonly documents: readonly string[]
  /** Whether scores are from 0 to 1 instead of logits; true if absent. */
  readonly isActivated?: boolean
  /** Whether documents are cut to fit, instead of refused; true if absent. */
  readonly isCut?: boolean
  readonly truncationSide?: TruncationSide
  /** The endpoint as the client knows it, such as `v1/rerank`. */
  readonly endpoint: string
}

/** Scores documents by their relevance to a query, in their order. */
export async function scoreDocuments(
  http: Http,
  services: InferenceServices,
  ranking: Ranking,
): Promise<{
  readonly model: CatalogueModel
  readonly scores: readonly number[]
  readonly usage: TokenUsage
}> {
  const { model, input } = await rankingJob(services, callerOf(http.request), ranking)
  const { result, usage } = await runJob(http, services, { kind: 'embedding', model, input })
  if (result.task !== 'rerank') throw new Error('a ranking was answered with vectors')
  return { model, scores: result.scores, usage }
}

/** The job that scores the documents. Throws unless its model ranks. */
export async function rankingJob(
  models: ModelDirectory,
  caller: Caller,
  ranking: Ranking,
): Promise<{ readonly model: CatalogueModel; readonly input: RerankInput }> {
  const { modelName, query, queries, documents, endpoint, truncationSide } = ranking
  const { isActivated = true, isCut = true } = ranking
  const model = await getTaskModel(models, caller, { name: modelName, task: 'rerank', endpoint })
  return {
    model,
    input: {
      task: 'rerank',
      query,
      documents,
      ...(queries && { queries }),
      ...(!isActivated && { isActivated }),
      ...(!isCut && { isCut }),
      ...(truncationSide && { truncationSide }),
    },
  }
}

/** The positions of the documents, the most relevant first; all without a count or if it is 0. */
export function ranked(
  scores: readonly number[],
  count: number | null | undefined,
): readonly { readonly index: number; readonly score: number }[] {
  return scores
    .map((score, index) => ({ index, score }))
    .toSorted((one, other) => other.score - one.score)
    .slice(0, count || scores.length)
}
