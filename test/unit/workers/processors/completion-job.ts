import { systemClock } from '#shared/clock.ts'
import type {
  CandidateDelta,
  CompletionResult,
  GenerateInput,
} from '#shared/contracts/completion.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import { NEUTRAL_SAMPLING } from '#test/support/sampling.ts'
import { fixtureFolder } from '#test/unit/workers/text/model-folders.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { processCompletion } from '#workers/processors/completion.ts'
import { createCompletionModel } from '#workers/processors/completion-model.ts'
import type { TextModel } from '#workers/text/text-model.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

export const text: TextModel = await loadTextModel(fixtureFolder('llama'), systemClock)

/** A plain greedy request for up to 16 tokens. */
export const BASE: GenerateInput = {
  task: 'generate',
  prompts: [{ form: 'text', text: 'The quick' }],
  n: 1,
  bestOf: 1,
  maxTokens: 16,
  sampling: { ...NEUTRAL_SAMPLING, temperature: 0, seed: 5 },
  stop: [],
  logprobs: null,
  echo: false,
  responseFormat: { type: 'text' },
  stream: false,
}

/** The answer of a job. */
export interface Answer {
  readonly promptTokens: number
  readonly droppedMessages: number
  readonly deltas: readonly CandidateDelta[]
  readonly result: Extract<CompletionResult, { task: 'generate' }>
  readonly usage: TokenUsage
  /** Request fields without effect on the model. */
  readonly ignored: readonly string[]
  /** As the first reply of a stream has them. */
  readonly promptTokenIds: readonly (readonly number[])[] | undefined
}

interface RunOptions {
  readonly engine: TextEngine
  readonly text?: TextModel
  readonly draftsFromPrompt?: boolean
  readonly signal?: AbortSignal
  /** Milliseconds that seem to pass with each look at the clock. */
  readonly tickMs?: number
}

/** Runs one job of a completion queue and gathers its replies. */
export async function runJob(
  input: JobEnvelope<'completion'>['input'] | Partial<GenerateInput>,
  options: RunOptions,
): Promise<Answer & { readonly raw: CompletionResult }> {
  let now = 1000
  const clock = { now: () => now, monotonic: () => (now += options.tickMs ?? 0) }
  const seen = {
    promptTokens: -1,
    droppedMessages: 0,
    deltas: [] as CandidateDelta[],
    ignored: [] as string[],
    promptTokenIds: undefined as Answer['promptTokenIds'],
  }
  let ending: { raw: CompletionResult; usage: TokenUsage } | undefined
  const job: JobEnvelope<'completion'> = {
    version: 1,
    jobId: 'job_1',
    epoch: 1,
    kind: 'completion',
    modelId: 'tiny',
    organizationId: 'org_1',
    replyTo: 'replies',
    enqueuedAtMs: 0,
    deadlineAtMs: 10_000,
    input:
      'task' in input && input.task === 'score' ? input : ({ ...BASE, ...input } as GenerateInput),
  }
  await processCompletion(job, {
    model: createCompletionModel(options.engine, options.text ?? text, {
      draftsFromPrompt: options.draftsFromPrompt ?? false,
    }),
    signal: options.signal ?? new AbortController().signal,
    clock,
    reply: {
      started: (promptTokens, { ignored = [], promptTokenIds, droppedMessages = 0 } = {}) => {
        seen.promptTokens = promptTokens
        seen.droppedMessages = droppedMessages
        seen.ignored.push(...ignored)
        seen.promptTokenIds = promptTokenIds
      },
      delta: (deltas) => seen.deltas.push(...deltas),
      progress: () => undefined,
      result: (raw, usage) => {
        ending = { raw, usage }
      },
    },
  })
  if (ending === undefined) throw new Error('the job ended without a result')
  return { ...seen, ...ending, result: ending.raw as Answer['result'] }
}

/** The text of one candidate as its deltas spell it. */
export function textOf(deltas: readonly CandidateDelta[], index = 0): string {
  return deltas
    .filter((delta) => delta.index === index)
    .map((delta) => delta.text)
    .join('')
}

export function encode(content: string): number[] {
  return text.tokenizer.encode(content, { addSpecialTokens: false })
}

/** A function with parameters, and one without. */
export const WEATHER = {
  name: 'weather',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', maxLength: 10 }, days: { type: 'integer', maximum: 9 } },
    required: ['city', 'days'],
  },
}
export const CLOCK = { name: 'clock' }
