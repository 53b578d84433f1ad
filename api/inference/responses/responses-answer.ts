import type { PriorityClass } from '#api/jobs/observers.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import type { ServiceError } from '#shared/errors.ts'

import type { ResponsesBody, ToolField } from './responses-body.ts'
import type { OutputItem } from './responses-output.ts'

/** The constant fields of one response. */
export interface ResponseHead {
  readonly id: string
  readonly createdAt: number
  readonly model: string
  readonly catalogueModel: CatalogueModel
  readonly serviceTier: PriorityClass
  readonly body: ResponsesBody
  readonly organizationId: string
  /** Whether the response can be fetched later. */
  readonly isStored: boolean
  /** The conversation that it continues. */
  readonly conversationId: string | null
}

/** The progress of a response. */
export type ResponseState =
  | { readonly status: 'queued' | 'in_progress' }
  | {
      readonly status: 'completed' | 'incomplete'
      readonly completedAt: number
      readonly output: readonly OutputItem[]
      readonly usage: TokenUsage
    }
  | {
      readonly status: 'failed'
      readonly output: readonly OutputItem[]
      readonly error: ServiceError
    }

/** Whether an answer is complete, which its last item states. */
export function endStatus(output: readonly OutputItem[]): 'completed' | 'incomplete' {
  return output.at(-1)?.status === 'incomplete' ? 'incomplete' : 'completed'
}

/** The response object. It is the whole answer, and part of some events of a stream. */
export function presentResponse(head: ResponseHead, state: ResponseState): object {
  const { body } = head
  const { status } = state
  return {
    id: head.id,
    object: 'response',
    created_at: head.createdAt,
    status,
    background: body.background ?? false,
    conversation: head.conversationId === null ? null : { id: head.conversationId },
    completed_at: status === 'completed' ? state.completedAt : null,
    error: status === 'failed' ? presentFailure(state.error) : null,
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    instructions: body.instructions ?? null,
    max_output_tokens: body.max_output_tokens ?? null,
    max_tool_calls: body.max_tool_calls ?? null,
    model: head.model,
    output: 'output' in state ? state.output : [],
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    previous_response_id: body.previous_response_id ?? null,
    prompt_cache_key: body.prompt_cache_key ?? null,
    reasoning: { effort: body.reasoning?.effort ?? null, summary: null },
    safety_identifier: body.safety_identifier ?? null,
    service_tier: head.serviceTier,
    store: head.isStored,
    temperature: body.temperature ?? 1,
    text: { format: presentFormat(body) },
    tool_choice: body.tool_choice ?? 'auto',
    tools: (body.tools ?? []).map(presentTool),
    top_logprobs: body.top_logprobs ?? 0,
    top_p: body.top_p ?? 1,
    truncation: body.truncation ?? 'disabled',
    usage: status === 'completed' || status === 'incomplete' ? presentUsage(state.usage) : null,
    user: body.user ?? null,
    metadata: body.metadata ?? {},
  }
}

function presentTool(tool: ToolField): object {
  const { type, name, description = null } = tool
  if (type === 'namespace') return { type, name, description, tools: tool.tools.map(presentTool) }
  if (type === 'custom') return { type, name, description, format: tool.format ?? { type: 'text' } }
  const { parameters = null, strict } = tool
  return { type, name, description, parameters, strict: strict ?? false }
}

/** Token counts; a response also counts the tokens that were written to a cache. */
export function presentUsage(
  usage: TokenUsage,
  otherInputTokens: object = { cache_write_tokens: 0 },
): object {
  const { promptTokens, completionTokens, cachedTokens, reasoningTokens = 0 } = usage
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens, ...otherInputTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
  }
}

/** The error of a failed response. Clients know few codes; the `error` event has the exact one. */
function presentFailure(error: ServiceError): object {
  return { code: 'server_error', message: error.message }
}

function presentFormat({ text }: ResponsesBody): object {
  const format = text?.format ?? { type: 'text' }
  if (format.type !== 'json_schema') return { type: format.type }
  const { type, name, schema, description, strict } = format
  return { type, name, schema, description: description ?? null, strict: strict ?? false }
}
