import type { FastifyReply, FastifyRequest } from 'fastify'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { Candidate, GenerateInput } from '#shared/contracts/completion.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { callerOf } from '#api/v1/caller.ts'
import { collectResult } from './collect.ts'
import { answerWithStream, type StreamPresenter } from './event-stream-answer.ts'
import type { PriorityClass } from './job-events.ts'
import { clientSignal, deadlineOf, traceOf } from './request-context.ts'
import type { InferenceServices } from './services.ts'

/** A generation and the two ways to present it. */
export interface Generation<Answer> {
  readonly model: CatalogueModel
  readonly input: GenerateInput
  readonly priorityClass?: PriorityClass
  present(outcome: {
    readonly candidates: readonly Candidate[]
    readonly usage: TokenUsage
  }): Answer
  presenter(): StreamPresenter
}

/** Runs a generation and answers it, whole or as a stream. */
export async function generate<Answer>(
  http: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  services: InferenceServices,
  generation: Generation<Answer>,
): Promise<Answer | FastifyReply> {
  const { request, reply } = http
  const { input } = generation
  const trace = traceOf(request)
  const nowMs = services.clock.now()
  const deadlineAtMs = nowMs + deadlineOf(request, services.config, input.stream)
  const events = services.submitter.submit<'completion'>({
    kind: 'completion',
    model: generation.model,
    input,
    organizationId: callerOf(request).organizationId,
    deadlineAtMs,
    signal: clientSignal(reply),
    ...(generation.priorityClass !== undefined && { priorityClass: generation.priorityClass }),
    ...(trace !== undefined && { trace }),
  })
  if (input.stream) {
    await answerWithStream(reply, events, {
      presenter: generation.presenter(),
      timeLeftMs: deadlineAtMs - nowMs,
      log: services.log,
    })
    return reply
  }
  const { result, usage, timings } = await collectResult(events)
  if (result.task !== 'generate') throw new Error('a generation was answered with scores')
  reply.header('x-queue-time-ms', Math.round(timings.queueMs))
  reply.header('x-inference-time-ms', Math.round(timings.runMs))
  return generation.present({ candidates: result.candidates, usage })
}
