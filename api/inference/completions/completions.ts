import type { FastifyInstance } from 'fastify'

import { type Generation, generate, type Validated, validatedOf } from '#api/inference/generate.ts'
import {
  getCompletionModel,
  type ModelDirectory,
  registerModelRoute,
  systemFingerprint,
} from '#api/inference/model-route.ts'
import { answerOrStream, COMPLETION_RESPONSE } from '#api/inference/response-schemas.ts'
import { streamChoice } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { freshHead } from '#api/v1/request-context.ts'

import { type CompletionAnswer, presentCompletion } from './completion-answer.ts'
import {
  COMPLETION_BODY,
  type CompletionBody,
  completionInput,
  ENGINE_COMPLETION_BODY,
} from './completion-request.ts'
import { completionPresenter } from './completion-stream.ts'

/** `POST /completions` and its older path. */
export function registerCompletions(app: FastifyInstance, services: InferenceServices): void {
  registerModelRoute(app, {
    path: '/completions',
    scope: 'completions',
    noun: 'Completion',
    summary: 'Complete a text',
    tag: 'Completions',
    body: COMPLETION_BODY,
    engineBody: ENGINE_COMPLETION_BODY,
    answer: answerOrStream('The completions.', COMPLETION_RESPONSE),
    handle: (http) => complete(http, services),
  })
}

async function complete(http: Http, services: InferenceServices): Promise<unknown> {
  const validated = validatedOf<CompletionBody>(http, services.clock)
  return generate(http, services, await completionGeneration(services, validated))
}

/** The job of a completion request, and the presentation of its result. */
export async function completionGeneration(
  services: ModelDirectory & Pick<InferenceServices, 'clock'>,
  validated: Validated<CompletionBody>,
): Promise<Generation<CompletionAnswer>> {
  const model = await getCompletionModel(services, validated.caller, validated.modelName)
  const input = completionInput(validated.body)
  const { newId, created } = validated.head ?? freshHead(services.clock)
  const head = {
    id: newId('cmpl-'),
    created,
    model: model.id,
    systemFingerprint: systemFingerprint(model),
  }
  return {
    model,
    input,
    present: (outcome) => presentCompletion(head, input, outcome),
    presenter: () => completionPresenter(head, input, streamChoice(validated.body)),
  }
}
