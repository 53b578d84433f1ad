import type { FastifyReply } from 'fastify'

import { type Caller, callerOf } from '#api/v1/caller.ts'
import { type AnswerHead, answerHeadOf } from '#api/v1/durable.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'
import type { Candidate, GenerateInput } from '#shared/contracts/completion.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { answerWithStream, type StreamPresenter } from './event-stream-answer.ts'
import type { PriorityClass } from './jobs/job-events.ts'
import { type Http, runJob, submitJob } from './jobs/run-job.ts'
import { modelNameOf } from './model-route.ts'
import type { InferenceServices } from './services.ts'

/**
 * The validated input of a generation. A batch line has no request, so its answer gets a new head.
 */
export interface Validated<Body> {
  readonly caller: Caller
  readonly modelName: string
  readonly body: Body
  readonly head?: AnswerHead
}

/** The validated input of a request. */
export function validatedOf<Body>({ request }: Http, clock: Pick<Clock, 'now'>): Validated<Body> {
  return {
    caller: callerOf(request),
    modelName: modelNameOf(request),
    body: request.body as Body,
    head: answerHeadOf(request, clock),
  }
}

/** The candidates of a stream as they grow, by their index. */
export type StreamedCandidates = Map<number, Candidate>

/** A generation and the two ways to present it. */
export interface Generation<Answer> {
  readonly model: CatalogueModel
  readonly input: GenerateInput
  readonly priorityClass?: PriorityClass
  present(outcome: {
    readonly candidates: readonly Candidate[]
    readonly usage: TokenUsage
    /** Where the request asks for token ids. */
    readonly promptTokenIds?: readonly (readonly number[])[]
    readonly dialect?: AnswerDialect
  }): Answer
  presenter(): StreamPresenter
}

/** Runs a generation and answers it, whole or as a stream. */
export async function generate<Answer>(
  http: Http,
  services: InferenceServices,
  generation: Generation<Answer>,
): Promise<Answer | FastifyReply> {
  const { model, input, priorityClass } = generation
  const job = {
    ...({ kind: 'completion', model, input } as const),
    ...(priorityClass !== undefined && { priorityClass }),
  }
  if (input.stream) {
    const { events, timeLeftMs } = submitJob(http, services, { ...job, isStream: true })
    const presenter = generation.presenter()
    await answerWithStream(http.reply, events, { presenter, timeLeftMs, log: services.log })
    return http.reply
  }
  const { result, usage } = await runJob(http, services, job)
  if (result.task !== 'generate') throw new Error('a generation was answered with scores')
  return generation.present({ ...result, usage })
}
