import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { modelBodies, optionalInteger, optionalString } from '#api/inference/field-schemas.ts'
import { getCapableModel, modelNameOf, registerModelRoute } from '#api/inference/model-route.ts'
import { EDIT_RESPONSE } from '#api/inference/response-schemas.ts'
import { SAMPLING_FIELDS, samplingParams } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { answerHeadOf, callerOf } from '#api/v1/request-context.ts'
import type { GenerateInput } from '#shared/contracts/completion.ts'
import { Type } from '#shared/schema-types.ts'

import { presentUsage } from './completion-answer.ts'

const CANDIDATES_MAX = 20

const FIELDS = {
  input: optionalString({ default: '', description: 'The text to edit.' }),
  instruction: Type.String({ minLength: 1, description: 'The instruction for the edit.' }),
  n: optionalInteger({
    minimum: 1,
    maximum: CANDIDATES_MAX,
    default: 1,
    description: 'The number of edited texts to return.',
  }),
  temperature: SAMPLING_FIELDS.temperature,
  top_p: SAMPLING_FIELDS.top_p,
  seed: SAMPLING_FIELDS.seed,
  timeout: SAMPLING_FIELDS.timeout,
}

const { body: EDIT_BODY, engineBody: ENGINE_EDIT_BODY } = modelBodies(FIELDS)
type EditBody = Static<typeof ENGINE_EDIT_BODY>

/** `POST /edits` and its older path. */
export function registerEdits(app: FastifyInstance, services: InferenceServices): void {
  registerModelRoute(app, {
    path: '/edits',
    scope: 'edits',
    noun: 'Edit',
    summary: 'Edit a text according to an instruction',
    tag: 'Edits',
    isDeprecated: true,
    body: EDIT_BODY,
    engineBody: ENGINE_EDIT_BODY,
    answer: EDIT_RESPONSE,
    handle: (http) => edit(http, services),
  })
}

async function edit(http: Http, services: InferenceServices): Promise<object> {
  const { request } = http
  const model = await getCapableModel(services, callerOf(request), {
    name: modelNameOf(request),
    kind: 'completion',
    capability: 'edit',
    endpoint: 'v1/edits',
  })
  const input = editInput(request.body as EditBody)
  const { result, usage } = await runJob(http, services, { kind: 'completion', model, input })
  if (result.task !== 'generate') throw new Error('an edit was answered with scores')
  return {
    object: 'edit',
    created: answerHeadOf(request, services.clock).created,
    choices: result.candidates
      .toSorted((one, other) => one.index - other.index)
      .map(({ text, index }) => ({ text, index })),
    usage: presentUsage(usage),
  }
}

function editInput(body: EditBody): GenerateInput {
  const n = body.n ?? 1
  return {
    task: 'generate',
    prompts: [{ form: 'edit', input: body.input ?? '', instruction: body.instruction }],
    n,
    bestOf: n,
    maxTokens: null,
    sampling: samplingParams({
      temperature: body.temperature ?? null,
      top_p: body.top_p ?? null,
      seed: body.seed ?? null,
    }),
    stop: [],
    logprobs: null,
    echo: false,
    responseFormat: { type: 'text' },
    stream: false,
  }
}
