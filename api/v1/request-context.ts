import { createHash } from 'node:crypto'

import type { Context } from '@opentelemetry/api'
import type { FastifyInstance, FastifyRequest } from 'fastify'

import type { Administrator } from '#api/console/access.ts'
import { type BodyRoom, readsContents } from '#api/http/body-memory.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import { type Clock, unixSeconds } from '#shared/clock.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { ApiKeyStore, KeyLimits } from '#shared/db/api-keys.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'

import type { RequiredScope } from './scopes.ts'

/** The results of a request's hooks, for its route. */
export interface RequestContext {
  /** Set by the credential check of `/v1`. */
  caller?: Caller
  /**
   * Checks the credential again if its last check is too long ago; for the end of a body. Absent
   * for stored requests.
   */
  confirmCaller?: () => Promise<void>
  /** Set by the guard of the console. */
  administrator?: Administrator
  /** Set for a request whose jobs outlive this process. */
  durable?: DurableRequest
  /** Set for a large body. */
  bodyRoom?: BodyRoom
  /** The memory reserved for stored content that the request reads. */
  contentsRoom?: BodyRoom
  /** Reserves memory for content that an answer reads later. */
  reserveContents?: () => Promise<BodyRoom>
  /** Set when this is the stored request of a background job. */
  stored?: StoredRequest
  /** Called with the usage of each job of the request. */
  onUse?: (use: JobUse) => void
  /** Set while the request is traced. */
  trace?: Context
  /** Fields that have no effect on the answer. */
  readonly ignoredFields: Set<string>
}

declare module 'fastify' {
  interface FastifyRequest {
    context: RequestContext
  }
}

/** Gives every request its context; registered before all other hooks. */
export function addRequestContext(app: FastifyInstance): void {
  app.decorateRequest('context')
  app.addHook('onRequest', (request, _reply, done) => {
    request.context = { ignoredFields: new Set() }
    done()
  })
}

/** The authenticated caller of a request and its permissions. */
export interface Caller {
  readonly organizationId: string
  /** Set when the request carried an API key. */
  readonly apiKeyId?: string
  /** The user who created the API key; absent for keys of the operator. */
  readonly madeBy?: string
  /** Set when the request carried a user's access token. */
  readonly userId?: string
  /** The user has no email address, phone number or provider. */
  readonly isAnonymous?: boolean
  /** The user's role in the organization. */
  readonly role?: 'owner' | 'admin' | 'member'
  /** Null means all. */
  readonly scopes: readonly string[] | null
  /** Null means all. */
  readonly modelIds: readonly string[] | null
  /** When the credential stops working; null means never. */
  readonly expiresAtMs: number | null
  /** Limits of the API key besides those of the server. */
  readonly limits?: KeyLimits
}

/** The caller of a request. Only routes behind authentication may use it. */
export function callerOf({ context: { caller } }: Pick<FastifyRequest, 'context'>): Caller {
  if (caller === undefined) throw new Error('the route is not behind the credential check')
  return caller
}

/** The right to read stored content, which the stores require. */
export interface ContentsReader {
  readonly organizationId: string
  /** The route declares `readsContents`. */
  readonly reservesMemory: true
}

/** The reader of a request. Throws unless its route declares that it reads stored content. */
export function contentsReaderOf(request: FastifyRequest): ContentsReader {
  if (readsContents(request) === false) {
    throw new Error('the route does not declare that it reads stored content')
  }
  return { organizationId: callerOf(request).organizationId, reservesMemory: true }
}

/**
 * The refusal of an action that anonymous users may not perform; `doing` completes the sentence:
 * "create API keys".
 */
export function anonymousUsersCannot(doing: string): ServiceError {
  return failure.accessDenied(
    `Anonymous users cannot ${doing}. Add an email address, a phone number or a provider to the account first.`,
    { code: 'insufficient_permissions' },
  )
}

/** Throws `accessDenied` when the caller's key is not meant for this family of endpoints. */
export function requireScope(caller: Caller, scope: RequiredScope): void {
  if (scope === 'any' || caller.scopes === null || caller.scopes.includes(scope)) return
  throw failure.accessDenied(
    `You have insufficient permissions for this operation. Missing scopes: ${scope}.`,
    { code: 'missing_scope' },
  )
}

/** Whether the caller's key may use a model. */
export function mayUseModel(caller: Caller, model: Pick<CatalogueModel, 'id'>): boolean {
  return caller.modelIds === null || caller.modelIds.includes(model.id)
}

const NAME_SHOWN_MAX = 200

/** The refusal of a model that does not exist or that the caller may not use. */
export function noSuchModel(name: string, param?: string): ServiceError {
  return failure.notFound(
    `The model \`${name.slice(0, NAME_SHOWN_MAX)}\` does not exist or you do not have access to it.`,
    { code: 'model_not_found', ...(param !== undefined && { param }) },
  )
}

/**
 * A key manages keys, organizations and members only while the user who created it may: a revoked
 * creator must not leave a valid key behind. Other uses of the key continue.
 */
export async function requireCreator(
  apiKeys: Pick<ApiKeyStore, 'mayManage'>,
  { organizationId, madeBy }: Caller,
): Promise<void> {
  if (madeBy === undefined || (await apiKeys.mayManage(organizationId, madeBy))) return
  throw failure.accessDenied(
    'The user who made this API key may not manage this organization any more, so the key may not either. Ask an administrator of the organization for a new one.',
    { code: 'insufficient_permissions' },
  )
}

/** The usage of a job. */
export interface JobUse {
  readonly tokens: number
  /** At the price of the model; 0 without a price. */
  readonly cost: number
}

/** The account that the jobs of a request are charged to. */
export interface JobAccount {
  readonly requestId: string
  readonly apiKeyId: string | undefined
  readonly userId: string | undefined
  /** Identifies the use if several jobs may run for one answer; otherwise the job does. */
  readonly usageId?: string
  /** Called once per job with its usage. */
  noteUse(use: JobUse): void
}

/** The account of a request behind the credential check. */
export function accountOf(request: FastifyRequest): JobAccount {
  const { apiKeyId, userId } = callerOf(request)
  return {
    requestId: request.id,
    apiKeyId,
    userId,
    noteUse: (use) => request.context.onUse?.(use),
  }
}

/** A stored request that this process sends to itself on behalf of its caller. */
export interface StoredRequest {
  /** The id of the job. */
  readonly id: string
  readonly createdAtMs: number
  readonly caller: Caller
  /** Aborted when the job is cancelled. */
  readonly signal: AbortSignal
  /**
   * Releases the slot to another job; this one then only waits for its worker. Throws when too many
   * jobs of the process do so.
   */
  leaveSlot(): void
  /** Called with the usage of the request. */
  noteUse(use: JobUse): void
}

/** A job in the form in which another process can adopt it. */
export interface StoredJob {
  /** In its current epoch. */
  readonly envelope: JobEnvelope
  /**
   * The points at which former owners left the runs of earlier epochs: later replies of these runs
   * are not part of the answer.
   */
  readonly cuts: readonly { readonly epoch: number; readonly lastSeq: number }[]
}

/** A job that outlives the process which holds its client. */
export interface DurableJob {
  /** The job of a dead process to adopt; undefined when the job is new. */
  readonly adopted: StoredJob | undefined
  /**
   * Resolves when another process could adopt the job; false when one has begun the request in the
   * meantime.
   */
  keep(job: StoredJob): Promise<boolean>
}

/** A request whose jobs outlive its process, so that another process gives the same answer. */
interface DurableRequest {
  /** When the first process started it. */
  readonly startedAtMs: number
  /** Identifies the request; the ids in its answer are derived from it. */
  readonly id: string
  readonly isAdopted: boolean
  /** Calls back when the request has ended: answered or abandoned, with or without its client. */
  onOver(listener: () => void): void
  /** Its next job, in the order in which the route submits them. */
  nextJob(): DurableJob
}

/** The id and time of an answer. */
export interface AnswerHead {
  /** Unix seconds. */
  readonly created: number
  newId(prefix: string, length?: number): string
}

/** The head of an answer that cannot be requested again. */
export function freshHead(clock: Pick<Clock, 'now'>): AnswerHead {
  return { created: unixSeconds(clock.now()), newId: randomId }
}

/** The head of the answer to a request; the same in every process that answers it. */
export function answerHeadOf(
  { context: { durable } }: Pick<FastifyRequest, 'context'>,
  clock: Pick<Clock, 'now'>,
): AnswerHead {
  return durable === undefined ? freshHead(clock) : durableHead(durable)
}

/** The head of the answer to a durable request. */
export function durableHead({
  id,
  startedAtMs,
}: Pick<DurableRequest, 'id' | 'startedAtMs'>): AnswerHead {
  return {
    created: unixSeconds(startedAtMs),
    newId: (prefix, length) => derivedId(prefix, `${id} ${startedAtMs}`, length),
  }
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'

/** An id that is a function of its source, in the form of a random one. */
export function derivedId(prefix: string, source: string, length = 24): string {
  const bytes = createHash('sha512').update(`${prefix}\n${source}`).digest()
  let id = prefix
  for (let i = 0; i < Math.min(length, bytes.length); i += 1) {
    id += ALPHABET[(bytes[i] as number) % ALPHABET.length]
  }
  return id
}
