import type { Catalogue } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { QueueKind } from '#shared/contracts/queues.ts'
import type { ApiKeyStore } from '#shared/db/api-keys.ts'
import type { Logger } from '#shared/logger.ts'

import type { Submitter } from './job-events.ts'

/** One live worker process, as the registry knows it. */
export interface WorkerInfo {
  readonly queues: readonly {
    readonly kind: QueueKind
    readonly modelId: string
    /** Whether the model is loaded. */
    readonly isReady: boolean
  }[]
}

/** Everything that the inference surface needs. */
export interface InferenceServices {
  readonly submitter: Submitter
  readonly catalogue: Catalogue
  readonly workers: () => Promise<readonly WorkerInfo[]>
  readonly apiKeys: ApiKeyStore
  readonly clock: Clock
  readonly log: Logger
  readonly config: { readonly deadlineSeconds: number }
}
