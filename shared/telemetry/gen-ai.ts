import { Histogram, type Registry } from 'prom-client'

import type { QueueKind, QueueTable } from '#shared/contracts/job.ts'

// Names, labels and buckets are those of OpenTelemetry's semantic conventions for generative AI,
// in Prometheus spelling: dots become underscores, and the unit is appended.

/** The labels of every metric of a model operation. */
const GEN_AI_LABELS = [
  'gen_ai_operation_name',
  'gen_ai_provider_name',
  'gen_ai_request_model',
] as const

/** Values of `GEN_AI_LABELS`. */
export type GenAiLabels = Readonly<Record<(typeof GEN_AI_LABELS)[number], string>>

/** The value of `gen_ai.provider.name`. */
export const PROVIDER = 'millrace'

/** The labels of a job; every value is from a closed set. */
export function genAiLabels(job: {
  readonly kind: QueueKind
  readonly modelId: string
  readonly input: QueueTable[QueueKind]['input']
}): GenAiLabels {
  return {
    gen_ai_operation_name: operationName(job),
    gen_ai_provider_name: PROVIDER,
    gen_ai_request_model: job.modelId,
  }
}

/** The operation name: the term of the conventions if they define one. */
function operationName(job: {
  readonly kind: QueueKind
  readonly input: QueueTable[QueueKind]['input']
}): string {
  const { kind, input } = job
  switch (kind) {
    case 'completion': {
      if (input.task !== 'generate') return input.task
      const prompts = 'prompts' in input ? input.prompts : []
      return prompts[0]?.form === 'chat' ? 'chat' : 'text_completion'
    }
    case 'embedding':
      return VECTOR_TASKS.includes(input.task) ? 'embeddings' : input.task
    case 'image':
      return IMAGE_OPERATIONS[input.task] ?? 'image_generation'
    case 'audio':
      return input.task === 'translate' ? 'translation' : 'transcription'
    case 'speech':
      return 'text_to_speech'
    case 'training':
      return 'fine_tuning'
  }
}

const VECTOR_TASKS: readonly string[] = ['embed', 'sparse', 'multi-vector']

const IMAGE_OPERATIONS: Readonly<Record<string, string>> = {
  generate: 'image_generation',
  edit: 'image_edit',
  variation: 'image_variation',
}

/** The usual operations of each kind. */
export const USUAL_OPERATIONS: Readonly<Record<QueueKind, readonly string[]>> = {
  completion: ['chat', 'text_completion'],
  embedding: ['embeddings'],
  image: ['image_generation'],
  audio: ['transcription'],
  speech: ['text_to_speech'],
  training: ['fine_tuning'],
}

const FIRST_TOKEN_BUCKETS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
]
const PER_TOKEN_BUCKETS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
const REQUEST_BUCKETS = Array.from({ length: 14 }, (_, power) => 0.01 * 2 ** power)
const TOKENS_BUCKETS = Array.from({ length: 14 }, (_, power) => 4 ** power)
const BATCH_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
const WAIT_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]

/** From the submission of a job to its end, measured by the process that owns it. */
export function requestDuration(registry: Registry) {
  return new Histogram({
    name: 'gen_ai_server_request_duration_seconds',
    help: 'Time from the submission of a job to its end, waiting and resubmissions included.',
    labelNames: [...GEN_AI_LABELS, 'error_type'],
    buckets: REQUEST_BUCKETS,
    registers: [registry],
  })
}

/** From the submission of a job to its first token. */
export function timeToFirstToken(registry: Registry) {
  return new Histogram({
    name: 'gen_ai_server_time_to_first_token_seconds',
    help: 'Time from the submission of a job to its first token, waiting included.',
    labelNames: [...GEN_AI_LABELS],
    buckets: FIRST_TOKEN_BUCKETS,
    registers: [registry],
  })
}

/** The time between two tokens of one text: the inter-token latency. */
export function timePerOutputToken(registry: Registry) {
  return new Histogram({
    name: 'gen_ai_server_time_per_output_token_seconds',
    help: 'Time between two successive tokens of one text.',
    labelNames: [...GEN_AI_LABELS],
    buckets: PER_TOKEN_BUCKETS,
    registers: [registry],
  })
}

/** Input and output tokens of a job. */
export function tokenUsage(registry: Registry) {
  return new Histogram({
    name: 'gen_ai_client_token_usage',
    help: 'Tokens per job: read (input) and written (output).',
    labelNames: [...GEN_AI_LABELS, 'gen_ai_token_type'],
    buckets: TOKENS_BUCKETS,
    registers: [registry],
  })
}

/** From the submission of a job to its start by a worker. */
export function queueWait(registry: Registry) {
  return new Histogram({
    name: 'millrace_queue_wait_seconds',
    help: 'Time from the submission of a job to the moment at which a worker takes it.',
    labelNames: [...GEN_AI_LABELS],
    buckets: WAIT_BUCKETS,
    registers: [registry],
  })
}

/** The parts of a run that wrote tokens: `prefill` and `decode`, which add up to `inference`. */
export function runPhases(registry: Registry) {
  return new Histogram({
    name: 'millrace_run_phase_seconds',
    help: 'Time of a finished run from its start to its first token (prefill), from there to its end (decode), and both (inference).',
    labelNames: [...GEN_AI_LABELS, 'phase'],
    buckets: WAIT_BUCKETS,
    registers: [registry],
  })
}

/** The amounts that text requests ask for: candidates (`n`) and tokens (`max_tokens`). */
export function requestedAmounts(registry: Registry) {
  return new Histogram({
    name: 'millrace_request_parameter',
    help: 'Candidates (n) and tokens (max_tokens) that a text request asks for; requests without max_tokens count only in n.',
    labelNames: [...GEN_AI_LABELS, 'parameter'],
    buckets: TOKENS_BUCKETS,
    registers: [registry],
  })
}

/** The length of the longest candidate of a text request. */
export function longestCandidate(registry: Registry) {
  return new Histogram({
    name: 'millrace_longest_candidate_tokens',
    help: 'Tokens of the longest candidate of a text request; of all candidates in gen_ai_client_token_usage.',
    labelNames: [...GEN_AI_LABELS],
    buckets: TOKENS_BUCKETS,
    registers: [registry],
  })
}

/** The tokens of one step of a text model. */
export function stepTokens(registry: Registry) {
  return new Histogram({
    name: 'millrace_step_tokens',
    help: 'Tokens that one step of a text model reads and writes, of all its sequences.',
    labelNames: ['kind', 'gen_ai_request_model'],
    buckets: TOKENS_BUCKETS,
    registers: [registry],
  })
}

/** The batch size of a model run. */
export function batchSize(registry: Registry) {
  return new Histogram({
    name: 'millrace_batch_size',
    help: 'Sequences, texts or pairs that one run of the model handles together.',
    labelNames: ['kind', 'gen_ai_request_model'],
    buckets: BATCH_BUCKETS,
    registers: [registry],
  })
}
