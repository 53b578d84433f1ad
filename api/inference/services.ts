import type { BodyMemory } from '#api/http/body-memory.ts'
import type { BackgroundJobs } from '#api/jobs/background-jobs.ts'
import type { HeldBytes } from '#api/jobs/held-bytes.ts'
import type { JobStore } from '#api/jobs/job-store.ts'
import type { Submitter } from '#api/jobs/observers.ts'
import type { AnswerStore } from '#api/stored/answer-store.ts'
import type { ConversationStore } from '#api/stored/conversation-store.ts'
import type { NoteEvent } from '#api/v1/events.ts'
import type { Catalogue, CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { SamplingDefaults } from '#shared/contracts/completion.ts'
import type { QueueKind } from '#shared/contracts/job.ts'
import type { ApiKeyStore } from '#shared/db/api-keys.ts'
import type { Logger } from '#shared/logger.ts'
import type { GuardedFetch } from '#shared/net/guarded-fetch.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import type { UrlSigner } from '#shared/storage/signed-url.ts'

/** Limits of the images of one request, and the client that fetches images from URLs. */
export interface ImageIntake {
  readonly countMax: number
  readonly bytesMax: number
  /** Undefined where URLs are not fetched. */
  readonly fetch: GuardedFetch | undefined
  /** The memory of images that are being stored. */
  readonly memory: BodyMemory
  /** Protocols of the URLs that are fetched. */
  readonly protocols: readonly string[]
}

/** One live worker process, as the registry knows it. */
export interface WorkerInfo {
  readonly queues: readonly {
    readonly kind: QueueKind
    readonly modelId: string
    /** Whether the model is loaded. */
    readonly isReady: boolean
    /** In tokens; absent if the worker does not report it, or the model reads no tokens. */
    readonly contextLength?: number
    /** The number of labels of a classifier. */
    readonly labelCount?: number
    readonly samplingDefaults?: SamplingDefaults
    /** The names of the voices of a model that speaks. */
    readonly voices?: readonly string[]
  }[]
}

/** The fields of an uploaded file that these endpoints read. */
export interface InferenceFile {
  readonly objectKey: string
  readonly purpose: string
  readonly bytes: number
}

/** The storage of responses, and the jobs that run them in the background. */
export interface ResponseStorage {
  readonly answers: AnswerStore
  readonly conversations: ConversationStore
  readonly jobs: JobStore
  readonly background: BackgroundJobs
  /** Whether responses are stored when the request does not say so. */
  readonly isDefault: boolean
}

/** The models that organizations made; each is visible only to its organization. */
interface OrganizationModels {
  find(organizationId: string, name: string): Promise<CatalogueModel | undefined>
  list(organizationId: string): Promise<readonly CatalogueModel[]>
}

/** The collaborators of the inference surface. */
export interface InferenceServices {
  readonly submitter: Submitter
  readonly catalogue: Catalogue
  /** Absent if organizations cannot make models. */
  readonly tunedModels?: OrganizationModels
  readonly workers: () => Promise<readonly WorkerInfo[]>
  /** The workers in the last list that this process read. */
  readonly workersSeen: () => readonly WorkerInfo[]
  /** Jobs that this process has submitted and whose results it awaits. */
  readonly jobsInFlight: () => number
  readonly apiKeys: ApiKeyStore
  /** The uploaded files of organizations. */
  readonly files: {
    find(organizationId: string, id: string): Promise<InferenceFile | undefined>
  }
  /** The store of files, images and recordings. */
  readonly store: ObjectStore
  /** Limits the stored images and recordings of unfinished requests. */
  readonly temporaryBytes: HeldBytes
  /** The intake of images in messages. */
  readonly images: ImageIntake
  /** Signs the URLs of images. */
  readonly signer: UrlSigner
  /** Without it responses are not stored. */
  readonly stored?: ResponseStorage
  /** Records created, changed and revoked keys. */
  readonly note: NoteEvent
  /** Encrypts the summaries of conversations that clients keep. */
  readonly cipher?: ContentCipher | undefined
  readonly clock: Clock
  readonly log: Logger
  readonly config: {
    readonly deadlineSeconds: number
    /** False if absent. */
    readonly anonymousUsersMayCreateKeys?: boolean
    /** Dialects that are not served; none if absent. */
    readonly dialectsOff?: readonly string[]
  }
  /** The URL that clients use, including the path prefix of a proxy. */
  readonly publicUrl: string
}
