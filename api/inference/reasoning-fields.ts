import type { Static, TObject } from 'typebox'

import type { Hint, TemplateOptions } from '#shared/contracts/completion.ts'
import { Type } from '#shared/schema-types.ts'
import { nullable } from '#shared/schemas.ts'

import { optionalBoolean, optionalEnum, optionalInteger } from './field-schemas.ts'

const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const
type Effort = (typeof EFFORTS)[number]

/** The limit of reasoning tokens where the chat template does not read the effort itself. */
const THINKING_TOKENS: Readonly<Record<Effort, number | null>> = {
  none: 0,
  minimal: 256,
  low: 1024,
  medium: 8192,
  high: null,
  xhigh: null,
  max: null,
}
const DEFAULT_VERBOSITY = 'medium'
const REPORTED = 'Ignored where the model does not know it, which the answer reports.'

/** How much a model reasons. */
export const EFFORT = optionalEnum(EFFORTS, {
  description: `How much the model reasons: \`none\` not at all, \`minimal\`, \`low\` and \`medium\` up to ${THINKING_TOKENS.minimal}, ${THINKING_TOKENS.low} and ${THINKING_TOKENS.medium} tokens unless its chat template reads the effort, the others without a limit. ${REPORTED}`,
})
/** How much a model writes. */
export const VERBOSITY = optionalEnum(['low', 'medium', 'high'], {
  description: `How much the model writes, if its chat template reads this field. ${REPORTED}`,
})
/** The fields of chat completions about reasoning. */
export const REASONING_FIELDS = {
  reasoning_effort: EFFORT,
  verbosity: VERBOSITY,
  enable_thinking: optionalBoolean({
    description: `Whether the model reasons, if its chat template reads this field. ${REPORTED}`,
  }),
  thinking_token_budget: optionalInteger({
    minimum: -1,
    description: `The maximum number of reasoning tokens; -1 means no limit. ${REPORTED}`,
  }),
  include_reasoning: optionalBoolean({
    default: true,
    description: 'Whether the answer contains the reasoning of the model.',
  }),
  reasoning: Type.Optional(
    nullable(
      Type.Object(
        {
          effort: EFFORT,
          max_tokens: optionalInteger({
            minimum: 0,
            description: 'The same as `thinking_token_budget`.',
          }),
          enabled: optionalBoolean({ description: 'The same as `enable_thinking`.' }),
          exclude: optionalBoolean({ description: 'The opposite of `include_reasoning`.' }),
        },
        {
          additionalProperties: false,
          description: 'Other names of the fields about reasoning, as in OpenRouter.',
        },
      ),
    ),
  ),
}
type ReasoningBody = Static<TObject<typeof REASONING_FIELDS>>

/** The same as `reasoningGuidance` for the fields of chat completions. */
export function chatGuidance(body: ReasoningBody): Guidance {
  const { effort, max_tokens: tokens, enabled } = body.reasoning ?? {}
  return reasoningGuidance({
    effort: chosen(['reasoning_effort', body.reasoning_effort], ['reasoning.effort', effort]),
    verbosity: { field: 'verbosity', value: body.verbosity },
    isEnabled: chosen(['enable_thinking', body.enable_thinking], ['reasoning.enabled', enabled]),
    tokensMax: chosen(
      ['thinking_token_budget', body.thinking_token_budget],
      ['reasoning.max_tokens', tokens],
    ),
  })
}

/** The first field that has a value. */
function chosen<T>(...fields: readonly (readonly [string, T | null | undefined])[]) {
  const [field, value] = fields.find(([, given]) => (given ?? null) !== null) ?? ['', null]
  return { field, value }
}

/** Whether the answer contains the reasoning of the model. */
export function showsReasoning(body: ReasoningBody): boolean {
  return body.include_reasoning !== false && body.reasoning?.exclude !== true
}

/** The values of the fields about reasoning, by their names in the request. */
interface ReasoningChoice {
  readonly effort?: { readonly field: string; readonly value: Effort | null | undefined }
  readonly verbosity?: { readonly field: string; readonly value: string | null | undefined }
  readonly isEnabled?: { readonly field: string; readonly value: boolean | null | undefined }
  readonly tokensMax?: { readonly field: string; readonly value: number | null | undefined }
}

/** Variables of the chat template, and the request fields that set them. */
export interface Guidance {
  readonly variables: NonNullable<TemplateOptions['variables']>
  readonly hints: readonly Hint[]
}

/**
 * The options of the chat template and the limit of reasoning that the fields about reasoning set.
 */
export function reasoningGuidance(choice: ReasoningChoice): Guidance {
  const { effort, verbosity, isEnabled, tokensMax } = choice
  const variables: Record<string, string | boolean> = {}
  const hints: Hint[] = []
  if (typeof tokensMax?.value === 'number') {
    const limit = tokensMax.value === -1 ? null : tokensMax.value
    hints.push({ field: tokensMax.field, variables: [], thinkingTokensMax: limit })
  }
  if (effort?.value !== null && effort?.value !== undefined) {
    const own = { reasoning_effort: effort.value, ...switches(effort.value !== 'none') }
    Object.assign(variables, own)
    const limit = THINKING_TOKENS[effort.value]
    hints.push({
      field: effort.field,
      variables: Object.keys(own),
      thinkingTokensMax: limit,
      ...(effort.value === 'none' && { isUsual: true }),
    })
  }
  if (typeof isEnabled?.value === 'boolean') {
    const own = switches(isEnabled.value)
    Object.assign(variables, own)
    hints.push({ field: isEnabled.field, variables: Object.keys(own) })
  }
  if (typeof verbosity?.value === 'string') {
    variables.verbosity = verbosity.value
    hints.push({
      field: verbosity.field,
      variables: ['verbosity'],
      ...(verbosity.value === DEFAULT_VERBOSITY && { isUsual: true }),
    })
  }
  return { variables, hints }
}

/** The variables with which chat templates switch reasoning on and off. */
function switches(isOn: boolean): Record<string, boolean> {
  return { enable_thinking: isOn, thinking: isOn }
}
