import { callFormat } from '#shared/contracts/call-formats.ts'
import { callTrigger } from '#shared/contracts/call-syntax.ts'
import type { GenerateInput, ToolChoice, ToolDefinition } from '#shared/contracts/completion.ts'
import { mapSchemas } from '#shared/contracts/structural-tag.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import { BudgetExceededError, WorkBudget } from '#workers/preparation/work-budget.ts'
import { GrammarTooAmbiguousError } from '#workers/sampling/constraint/automaton.ts'
import type { SurveyedGrammar } from '#workers/sampling/constraint/grammar-data.ts'
import { fromGrammarData } from '#workers/sampling/constraint/grammar-data.ts'
import type {
  ConstraintFactory,
  ConstraintSource,
} from '#workers/sampling/constraint/token-constraint.ts'
import { TriggeredConstraint } from '#workers/sampling/constraint/triggered-constraint.ts'

import type { CompletionModel } from './completion-model.ts'
import type { AskedFormat, ConstraintPlan } from './constraint-plan.ts'
import { compileConstraint, formPathOf, isStrict } from './constraint-plan.ts'

/** Smaller plans are compiled on the event loop first, for about 10 ms at most. */
const INLINE_CHARACTERS_MAX = 16_384
const INLINE_STEPS_MAX = 60_000
/** Steps on the event loop for tools whose schema is compiled during decoding. */
const LATER_STEPS_MAX = 400_000
const LATER_TOOLS_MAX = 512

/** How the constraint of one job is prepared. */
interface ConstraintOptions {
  /** The budget of the whole request. */
  readonly budget?: WorkBudget
  /** Compiled grammars are shared within one scope. */
  readonly cacheScope: string
  readonly signal?: AbortSignal
}

/**
 * Finds the constraint of an answer: a forced call; the required format, or a call of an offered
 * function instead; or free text in which every call is one of an offered function. Grammars are
 * cached per scope, so that timing does not reveal the grammars of other organizations.
 */
export async function findConstraint(
  model: CompletionModel,
  input: GenerateInput,
  options: ConstraintOptions,
): Promise<Constraint> {
  const tools = input.prompts.map(forcedTools).find((forced) => forced !== undefined)
  const { calls } = model.dialect
  if (tools !== undefined) {
    return { source: await prepare(model, { kind: 'forced', tools, calls }, options) }
  }
  const offered = input.prompts.flatMap(offeredTools)
  const { responseFormat: format } = input
  if (format.type === 'text') {
    if (offered.length === 0) return { isFree: true }
    const plan = { kind: 'offered', tools: offered, calls } as const
    return { source: await callsInFreeText(model, plan, options), isFree: true }
  }
  const plan = { kind: 'form', format, tools: offered, calls } as const
  try {
    return { source: await prepare(model, plan, options) }
  } catch (error) {
    const loose = isUnenforceable(error) ? withoutSchemas(format) : undefined
    if (loose === undefined) throw error
    const source = await prepare(model, { ...plan, format: loose }, options)
    return { source, ignored: [formPathOf(format)] }
  }
}

/** A format whose schemas are any JSON, or any object; undefined without schemas or when strict. */
function withoutSchemas(format: AskedFormat): AskedFormat | undefined {
  const loosen = (schema: object): object =>
    'type' in schema && schema.type === 'object' ? { type: 'object' } : {}
  if (format.type === 'structuralTag') {
    return { ...format, format: mapSchemas(format.format, loosen) }
  }
  if (format.type !== 'jsonSchema' || format.isStrict === true) return undefined
  return { ...format, schema: loosen(format.schema) }
}

/** The constraint of an answer, and the request fields that are not enforced. */
interface Constraint {
  /** Absent if any text is allowed. */
  readonly source?: ConstraintSource
  readonly ignored?: readonly string[]
  /** The answer may begin with any text. */
  readonly isFree?: boolean
}

function isUnenforceable(error: unknown): boolean {
  const isRefused = error instanceof ServiceError && error.kind === 'invalidRequest'
  return isRefused || error instanceof GrammarTooAmbiguousError
}

/** Compiles a plan: on the event loop if it proves to be cheap, else in a thread. */
function prepare(
  model: CompletionModel,
  plan: ConstraintPlan,
  { cacheScope, signal, budget = new WorkBudget() }: ConstraintOptions,
): Promise<ConstraintFactory> {
  const text = JSON.stringify(plan)
  const param = plan.kind === 'form' ? formPathOf(plan.format) : 'tools'
  const constraints = plan.tools.length > 0 ? model.callConstraints : model.constraints
  return constraints.prepare(`${cacheScope} ${text}`, async () => {
    const small = text.length <= INLINE_CHARACTERS_MAX ? tryInline(plan, budget) : undefined
    if (small !== undefined) return small
    const task = { kind: 'grammar', plan: text } as const
    return fromGrammarData(await model.grammars.run(task, { param, signal, budget }))
  })
}

function tryInline(plan: ConstraintPlan, whole: WorkBudget): SurveyedGrammar | undefined {
  try {
    const budget = new WorkBudget(INLINE_STEPS_MAX)
    const grammar = compileConstraint(plan, budget)
    whole.charge(budget.used)
    budget.extend(LATER_STEPS_MAX)
    return { grammar }
  } catch (error) {
    if (error instanceof BudgetExceededError) return undefined
    throw error
  }
}

/** The tools of which one must be called, or undefined when the model may choose to call none. */
function forcedTools(
  prompt: GenerateInput['prompts'][number],
): readonly ToolDefinition[] | undefined {
  if (prompt.form !== 'chat') return undefined
  const choice: ToolChoice = prompt.toolChoice ?? 'auto'
  if (choice === 'none' || choice === 'auto') return undefined
  const { tools = [] } = prompt
  const forced = choice === 'required' ? tools : tools.filter(({ name }) => name === choice.name)
  if (forced.length > 0) return forced
  throw failure.invalidRequest(
    choice === 'required'
      ? "Invalid 'tool_choice': 'required' needs at least one tool in 'tools'."
      : `Invalid 'tool_choice': there is no tool named '${choice.name}' in 'tools'.`,
    { param: 'tool_choice' },
  )
}

/** The tools that the model may call or not. */
function offeredTools(prompt: GenerateInput['prompts'][number]): readonly ToolDefinition[] {
  if (prompt.form !== 'chat' || (prompt.toolChoice ?? 'auto') !== 'auto') return []
  return prompt.tools ?? []
}

async function callsInFreeText(
  model: CompletionModel,
  plan: ConstraintPlan,
  request: ConstraintOptions,
): Promise<ConstraintSource> {
  const { tools } = plan
  const { text: opening, isAtStart } = callTrigger(callFormat(plan.calls))
  const options = { opening, isAtStart, pieces: model.answerPieces.withTools }
  const mustFollow = tools.some(isStrict)
  if (!mustFollow && tools.length <= LATER_TOOLS_MAX && tools.every(isSmall)) {
    // Most texts call no tool, and each small schema is cheap when the model calls its tool.
    const compile = () => compileConstraint(plan, new WorkBudget(LATER_STEPS_MAX))
    const key = `${request.cacheScope} later ${JSON.stringify(plan)}`
    const inner = () => model.callConstraints.get(key, compile)
    return new TriggeredConstraint({ ...options, inner, isLenient: true })
  }
  // A schema that cannot be enforced is refused before the model runs.
  const factory = await prepare(model, plan, request)
  return new TriggeredConstraint({ ...options, inner: () => factory, isLenient: !mustFollow })
}

function isSmall(tool: ToolDefinition): boolean {
  return JSON.stringify(tool).length <= INLINE_CHARACTERS_MAX
}
