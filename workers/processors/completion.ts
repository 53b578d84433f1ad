import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'
import type {
  AdapterReference,
  Candidate,
  CompletionResult,
  GenerateInput,
  SamplingDefaults,
  ScoreInput,
} from '#shared/contracts/completion.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import { failure } from '#shared/errors.ts'
import { WorkBudget } from '#workers/preparation/work-budget.ts'
import { GrammarTooAmbiguousError } from '#workers/sampling/constraint/automaton.ts'
import { FollowingBudget } from '#workers/sampling/constraint/token-constraint.ts'
import { countThinking } from '#workers/sampling/thinking-budget.ts'
import { beginsInReasoning } from '#workers/text/answer-dialect.ts'
import {
  findThinkingTags,
  ignoredHints,
  isTokenId,
  unknownTokenId,
} from '#workers/text/text-model.ts'

import { type CandidateOptions, CandidateRun } from './candidate-run.ts'
import { findConstraint } from './completion-constraint.ts'
import type { AdaptedTools, CompletionModel } from './completion-model.ts'
import { cacheScopeOf, type PreparedPrompt, preparePrompt } from './completion-prompt.ts'
import { formPathOf } from './constraint-plan.ts'
import { DeltaOutlet } from './delta-outlet.ts'
import { allOrNone, type JobTools, yieldToEventLoop } from './processor-row.ts'
import { processScore } from './score.ts'
import { promptScoresOf, ScoreBudget } from './score-budget.ts'
import { checkSourceFields, prepareSource } from './source-prompt.ts'
import { processTokens } from './tokens.ts'

type CompletionTools = JobTools<CompletionModel, 'completion'>

/**
 * Runs one job of a completion queue. Deltas and resume points number the generated candidates, `p
 * * bestOf + k`; the result numbers the returned ones, `p * n + k`.
 */
export async function processCompletion(
  job: JobEnvelope<'completion'>,
  tools: CompletionTools,
): Promise<void> {
  const { input } = job
  try {
    if (input.task === 'tokenize' || input.task === 'detokenize') {
      await processTokens(job, input, tools)
    } else await withAdapter(input.adapter, tools, (adapted) => processTexts(job, input, adapted))
  } catch (error) {
    if (!(error instanceof GrammarTooAmbiguousError)) throw error
    const format = input.task === 'generate' ? input.responseFormat : { type: 'text' as const }
    throw failure.invalidRequest(tooAmbiguous(format), {
      param: format.type === 'text' ? 'tools' : formPathOf(format),
      cause: error,
    })
  }
}

function tooAmbiguous({ type }: GenerateInput['responseFormat']): string {
  const end = 'is too ambiguous to be enforced while decoding'
  if (type === 'grammar') return `The grammar ${end}: a rule may not begin with itself.`
  if (type === 'text') {
    return `The schema of a tool ${end}. In the grammar of one, no rule may begin with itself.`
  }
  return `The schema ${end}.`
}

function processTexts(
  job: JobEnvelope<'completion'>,
  input: GenerateInput | ScoreInput,
  tools: AdaptedTools,
): Promise<void> {
  return input.task === 'score'
    ? processScore(job, input, tools)
    : processGenerate(job, input, tools)
}

/** Leases the adapter of a job until the work ends. */
async function withAdapter(
  reference: AdapterReference | undefined,
  tools: CompletionTools,
  work: (tools: AdaptedTools) => Promise<void>,
): Promise<void> {
  if (reference === undefined) return work(tools)
  const lease = await tools.model.adapters?.lease(reference)
  if (lease === undefined) throw new Error('the model was opened without adapters')
  try {
    tools.signal.throwIfAborted()
    await work({ ...tools, adapter: lease.adapter })
  } finally {
    lease.release()
  }
}

async function processGenerate(
  job: JobEnvelope<'completion'>,
  asked: GenerateInput,
  { model, reply, signal, clock, adapter }: AdaptedTools,
): Promise<void> {
  const input = withDefaults(asked, model.text.samplingDefaults)
  const startedAt = clock.monotonic()
  const queueMs = Math.max(clock.now() - job.enqueuedAtMs, 0)
  assertTokenIds(input, model.engine.vocabSize)
  checkSourceFields(model, input)
  const share = yieldToEventLoop(clock)
  const salt = input.cacheSalt === undefined ? '' : ` ${input.cacheSalt}`
  const cacheScope = `${cacheScopeOf(model, job.organizationId)}${salt}`
  const budget = new WorkBudget()
  const {
    source: constraint,
    ignored = [],
    isFree = false,
  } = await findConstraint(model, input, { cacheScope, signal, budget })
  const prompts: PreparedPrompt[] = []
  for (const prompt of input.prompts) {
    await share()
    const request = { budget, signal, cacheScope }
    prompts.push(
      model.engine.decoderLength === undefined
        ? await preparePrompt(model, prompt, input.maxTokens, request)
        : await prepareSource(model, prompt, input, request),
    )
  }
  const promptTokens = prompts.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0)
  const scoreBudget = new ScoreBudget()
  scoreBudget.charge(promptScoresOf(input, promptTokens))
  const outlet = new DeltaOutlet({ isStreamed: input.stream, reply, clock })
  const runs = openRuns({ model, input, constraint, outlet, scoreBudget }, prompts)
  const dialect = dialectOf(model, prompts, { input, isFree })
  const unread = [...ignored, ...ignoredHints(model.text, input.hints)]
  const promptTokenIds = input.returnsPromptTokens === true && {
    promptTokenIds: prompts.map(({ tokenIds }) => tokenIds),
  }
  const droppedMessages = prompts.reduce((sum, { droppedCount }) => sum + droppedCount, 0)
  reply.started(promptTokens, {
    ...(droppedMessages > 0 && { droppedMessages }),
    ...(unread.length > 0 && { ignored: unread }),
    ...(input.stream && promptTokenIds),
    ...(dialect !== undefined && { dialect }),
  })
  const preparedAt = clock.monotonic()
  await allOrNone(
    signal,
    runs.map((run) => (either) => {
      return run.run({ signal: either, cacheScope, job: runs, ...(adapter && { adapter }) })
    }),
  )
  const usage: TokenUsage = {
    promptTokens,
    completionTokens: runs.reduce((sum, run) => sum + run.tokenIds.length, 0),
    ...countReasoning({ model, input, runs }, prompts),
    cachedTokens: countCached(runs, prompts, input.bestOf),
  }
  const result = {
    ...present(runs, prompts, input),
    ...(!input.stream && promptTokenIds),
    ...(!input.stream && dialect !== undefined && { dialect }),
  }
  reply.result(result, usage, {
    queueMs,
    prepareMs: preparedAt - startedAt,
    runMs: clock.monotonic() - preparedAt,
  })
}

/** The candidates of a job, which share the budget of their grammar. */
function openRuns(
  shared: Pick<CandidateOptions, 'model' | 'input' | 'constraint' | 'outlet' | 'scoreBudget'>,
  prompts: readonly PreparedPrompt[],
): CandidateRun[] {
  const { bestOf } = shared.input
  const followingBudget = new FollowingBudget()
  return prompts.flatMap((prompt, promptIndex) =>
    Array.from({ length: bestOf }, (_, k) => {
      const index = promptIndex * bestOf + k
      return new CandidateRun({ ...shared, prompt, index, followingBudget })
    }),
  )
}

/** Fills parameters that the request leaves out with the defaults of the model. */
function withDefaults(input: GenerateInput, defaults: SamplingDefaults = {}): GenerateInput {
  const { unsetSampling = [], sampling } = input
  const given = unsetSampling.filter((name) => defaults[name] !== undefined)
  if (given.length === 0) return input
  const values = Object.fromEntries(given.map((name) => [name, defaults[name]]))
  return { ...input, sampling: { ...sampling, ...values } }
}

/** The dialect of a chat's answers; undefined when every client can read them. */
function dialectOf(
  { dialect, isDialectSpecial }: CompletionModel,
  prompts: readonly PreparedPrompt[],
  { input, isFree }: { readonly input: GenerateInput; readonly isFree: boolean },
): AnswerDialect | undefined {
  const isChat = input.prompts.some(({ form }) => form === 'chat')
  if (!isChat || !isDialectSpecial) return undefined
  // A required format leaves no room for the end of the reasoning.
  const isOpen = isFree && prompts.some(({ text }) => beginsInReasoning(dialect, text))
  return { ...dialect, ...(isOpen && { beginsInReasoning: true }) }
}

function present(
  runs: readonly CandidateRun[],
  prompts: readonly PreparedPrompt[],
  { n, bestOf, promptLogprobs }: GenerateInput,
): CompletionResult {
  const candidates = prompts.flatMap((_, promptIndex) => {
    const own = runs.slice(promptIndex * bestOf, (promptIndex + 1) * bestOf)
    const best = bestOf > n ? own.toSorted((a, b) => b.meanLogprob() - a.meanLogprob()) : own
    return best
      .slice(0, n)
      .map((run, k): Candidate => ({ ...run.present(), index: promptIndex * n + k }))
  })
  if (promptLogprobs === undefined) return { task: 'generate', candidates }
  const scored = prompts.map((_, index) => (runs[index * bestOf] as CandidateRun).promptLogprobs())
  return { task: 'generate', candidates, promptLogprobs: scored }
}

/**
 * Cached tokens of the prompts: each prompt counts once, and prefixes shared by its own candidates
 * do not.
 */
function countCached(
  runs: readonly CandidateRun[],
  prompts: readonly PreparedPrompt[],
  bestOf: number,
): number {
  return prompts.reduce((sum, { tokenIds }, promptIndex) => {
    const own = runs.slice(promptIndex * bestOf, (promptIndex + 1) * bestOf)
    const least = Math.min(...own.map((run) => run.cachedTokens))
    return sum + Math.min(least, tokenIds.length)
  }, 0)
}

/** Reasoning tokens in the answers of chats; absent if the model never reasons. */
function countReasoning(
  job: Pick<CandidateOptions, 'model' | 'input'> & { readonly runs: readonly CandidateRun[] },
  prompts: readonly PreparedPrompt[],
): Pick<TokenUsage, 'reasoningTokens'> {
  const { model, input, runs } = job
  const isChat = input.prompts.some(({ form }) => form === 'chat')
  const tags = isChat ? findThinkingTags(model.text) : undefined
  if (tags === undefined) return {}
  const counts = runs.map(({ tokenIds }, index) => {
    const promptTokenIds = prompts[Math.floor(index / input.bestOf)]?.tokenIds ?? []
    return countThinking({ tags, promptTokenIds }, tokenIds)
  })
  return { reasoningTokens: counts.reduce((sum, count) => sum + count, 0) }
}

function assertTokenIds({ sampling, ending, tokenRules }: GenerateInput, vocabSize: number): void {
  for (const key of Object.keys(sampling.logitBias)) {
    if (isTokenId(Number(key), vocabSize)) continue
    throw unknownTokenId('logit_bias', `'${key.slice(0, 32)}'`, vocabSize)
  }
  const lists = {
    stop_token_ids: ending?.stopTokenIds ?? [],
    allowed_token_ids: tokenRules?.allowedTokenIds ?? [],
  }
  for (const [param, tokenIds] of Object.entries(lists)) {
    const wrong = tokenIds.find((tokenId) => !isTokenId(tokenId, vocabSize))
    if (wrong !== undefined) throw unknownTokenId(param, String(wrong), vocabSize)
  }
}
