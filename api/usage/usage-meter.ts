import type { JobObserver, SubmitRequest } from '#api/jobs/observers.ts'
import type { Outbox } from '#api/v1/outbox.ts'
import type { Catalogue, CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { QueueKind } from '#shared/contracts/job.ts'
import type { UsageRow } from '#shared/db/schema/usage.ts'

interface Meter {
  readonly writer: Pick<Outbox<UsageRow>, 'write' | 'draft' | 'discard'>
  readonly clock: Clock
}

/**
 * Records the usage of each job once, however it ends, even if this process is killed: the tokens
 * so far are journaled while they stream. Another run for the same answer counts as the same usage.
 */
export function createUsageMeter({ writer, clock }: Meter): JobObserver {
  return {
    begin(request) {
      const used = { promptTokens: 0, completionTokens: 0, cachedTokens: 0 }
      let hasStarted = false
      let isRecorded = false
      const row = (outcome: UsageRow['outcome']): UsageRow => {
        return { ...rowOf(request), ...used, outcome, createdAt: new Date(clock.now()) }
      }
      const record = (outcome: UsageRow['outcome']): void => {
        // A job that has not started used nothing, and a failure without a token is not charged.
        const isFree = !hasStarted || (outcome === 'failed' && used.completionTokens === 0)
        if (isRecorded) return
        if (isFree) {
          writer.discard(rowOf(request).jobId)
          return
        }
        isRecorded = true
        writer.write(row(outcome))
        request.account?.noteUse({
          tokens: used.promptTokens + used.completionTokens,
          cost: costOf(request.model.price, used) ?? 0,
        })
      }
      return {
        onEvent(event) {
          if (event.type === 'started') {
            hasStarted = true
            used.promptTokens = event.promptTokens
          } else if (event.type === 'progress' && event.training !== undefined) {
            used.promptTokens = event.training.trainedTokens
            writer.draft(row('abandoned'))
          } else if (event.type === 'delta') {
            for (const { tokenIds } of event.deltas) used.completionTokens += tokenIds.length
            writer.draft(row('abandoned'))
          } else if (event.type === 'result') {
            hasStarted = true
            Object.assign(used, event.usage)
            record('finished')
          }
        },
        onEnd: ({ outcome }) => record(outcome === 'failed' ? 'failed' : 'abandoned'),
      }
    },
  }
}

function rowOf({
  account,
  jobId,
  kind,
  model,
  organizationId,
}: SubmitRequest<QueueKind> & { readonly jobId: string }) {
  return {
    kind,
    organizationId,
    jobId: account?.usageId ?? jobId,
    modelId: model.id,
    apiKeyId: account?.apiKeyId ?? null,
    userId: account?.userId ?? null,
    requestId: account?.requestId ?? null,
  }
}

const TOKENS_OF_A_PRICE = 1e6
/** `ft:<base>:…`, the name of a tuned model. */
const TUNED = /^ft:(.+?):/

interface Tokens {
  readonly promptTokens: number
  readonly completionTokens: number
}

/** The cost of tokens at the price of a model; null without a price. */
export function costOf(price: CatalogueModel['price'], used: Tokens): number | null {
  if (price === undefined) return null
  const { input, output } = price
  return (used.promptTokens * input + used.completionTokens * output) / TOKENS_OF_A_PRICE
}

/** Returns the current price of a model; a tuned model has the price of its base. */
export function priceOf(catalogue: Catalogue, modelId: string): CatalogueModel['price'] {
  return catalogue.find(baseNameOf(modelId))?.price
}

/** The name of the model of which a tuned model was made; other names are returned unchanged. */
export function baseNameOf(modelName: string): string {
  return TUNED.exec(modelName)?.[1] ?? modelName
}
