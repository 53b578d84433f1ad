import { optionalList, optionalObject, optionalString } from '#api/inference/field-schemas.ts'
import { DETAIL } from '#api/inference/request-images.ts'
import type { ChatToolCall } from '#shared/contracts/completion.ts'
import { Type } from '#shared/schema-types.ts'

const ANY = Type.Optional(Type.Unknown())
const TEXT = Type.String()
/** The fields of every item. `status` is not checked, because servers have states of their own. */
const STORED = { id: optionalString({ maxLength: 512 }), status: ANY, created_by: ANY }
const CALL_ID = Type.String({ minLength: 1, maxLength: 256 })
const CALLED = { ...STORED, call_id: CALL_ID, caller: ANY, environment: ANY }
const ACTION = optionalObject()

/** Calls of tools that a hosted server ran, each with its result. */
const FINISHED_CALLS = {
  web_search_call: { ...STORED, action: ACTION, results: optionalList() },
  file_search_call: { ...STORED, queries: optionalList(), results: optionalList() },
  code_interpreter_call: {
    ...STORED,
    code: optionalString(),
    container_id: ANY,
    outputs: optionalList(),
  },
  image_generation_call: {
    ...STORED,
    result: optionalString(),
    revised_prompt: optionalString(),
    action: ANY,
    background: ANY,
    output_format: ANY,
    quality: ANY,
    size: ANY,
  },
  mcp_call: {
    ...STORED,
    server_label: TEXT,
    name: Type.String({ minLength: 1 }),
    arguments: TEXT,
    output: optionalString(),
    error: ANY,
    approval_request_id: ANY,
  },
}

/** Calls of tools that the client ran; each has its output in an item of its own. */
const OPEN_CALLS = {
  local_shell_call: { ...CALLED, action: ACTION },
  shell_call: { ...CALLED, action: ACTION },
  apply_patch_call: { ...CALLED, operation: ACTION },
  computer_call: {
    ...CALLED,
    action: ACTION,
    actions: optionalList(),
    pending_safety_checks: ANY,
  },
  program: { ...CALLED, code: optionalString(), fingerprint: ANY },
}

const OUTPUTS = {
  // OpenAI's API reference has the id of the call in `id`, its guide in `call_id`.
  local_shell_call_output: { ...STORED, call_id: optionalString({ maxLength: 256 }), output: TEXT },
  shell_call_output: {
    ...CALLED,
    output: Type.Array(Type.Unknown()),
    max_output_length: ANY,
  },
  apply_patch_call_output: { ...CALLED, output: optionalString() },
  program_output: { ...CALLED, result: optionalString() },
}

const LABELLED = { ...STORED, server_label: ANY, name: ANY, arguments: ANY, error: ANY }
const SEARCHED = { ...STORED, call_id: ANY, execution: ANY, arguments: ANY, tools: ANY }

/** Items that mean nothing to a model, because they concern the tools and not the conversation. */
const PASSED_OVER = {
  mcp_list_tools: { ...LABELLED, tools: ANY },
  mcp_approval_request: LABELLED,
  mcp_approval_response: { ...STORED, approval_request_id: ANY, approve: ANY, reason: ANY },
  tool_search_call: SEARCHED,
  tool_search_output: SEARCHED,
  additional_tools: { ...STORED, role: ANY, tools: ANY },
  configuration_update: { ...STORED, reasoning: ANY, text: ANY },
}

/** Items that hosted servers add to conversations and clients send back. */
export const HOSTED_ITEMS = {
  ...FINISHED_CALLS,
  ...OPEN_CALLS,
  ...OUTPUTS,
  computer_call_output: {
    ...CALLED,
    output: Type.Object({
      type: ANY,
      image_url: optionalString(),
      file_id: optionalString(),
      detail: DETAIL,
    }),
    acknowledged_safety_checks: ANY,
  },
  ...PASSED_OVER,
}

/** The fields that a hosted item may have, depending on its type. */
export interface HostedItem {
  readonly type: string
  readonly id?: string | null | undefined
  readonly call_id?: unknown
  readonly status?: unknown
  readonly action?: unknown
  readonly actions?: unknown
  readonly operation?: unknown
  readonly queries?: unknown
  readonly results?: unknown
  readonly code?: unknown
  readonly outputs?: unknown
  readonly result?: unknown
  readonly revised_prompt?: unknown
  readonly name?: unknown
  readonly arguments?: unknown
  readonly output?: unknown
  readonly error?: unknown
}

/** A hosted item as a step of a conversation. */
type HostedStep =
  | { readonly kind: 'call'; readonly call: ChatToolCall; readonly output?: string }
  | { readonly kind: 'output'; readonly callId: string; readonly output: string }
  | { readonly kind: 'nothing' }

/**
 * Converts a hosted item, the `index`th of its input, to a call or an output that templates
 * support.
 */
export function hostedStep(item: HostedItem, index: number): HostedStep {
  const { type } = item
  if (type in FINISHED_CALLS) {
    const call = { id: item.id || `call_${index}`, ...calledOf(item) }
    return { kind: 'call', call, output: foundBy(item) }
  }
  if (type in OPEN_CALLS)
    return { kind: 'call', call: { id: textOf(item.call_id), ...calledOf(item) } }
  if (type in OUTPUTS) {
    const callId = textOf(item.call_id ?? item.id)
    return { kind: 'output', callId, output: textOf(item.output ?? item.result ?? item.status) }
  }
  return { kind: 'nothing' }
}

/** The paths of hosted items and of their fields that the model does not see. */
export function hiddenItems(items: readonly { readonly type?: string }[]): string[] {
  return items.flatMap((item, index) => {
    const { type = 'message' } = item
    if (type in PASSED_OVER) return [`input[${index}]`]
    const isImage = type === 'image_generation_call' && (item as HostedItem).result
    return isImage ? [`input[${index}].result`] : []
  })
}

/** The tool of a call, and its arguments as JSON text. */
function calledOf(item: HostedItem): Omit<ChatToolCall, 'id'> {
  const name = item.type.slice(0, -'_call'.length)
  const json = (value: unknown) => ({ name, arguments: JSON.stringify(value ?? {}) })
  switch (item.type) {
    case 'mcp_call':
      return { name: textOf(item.name), arguments: textOf(item.arguments) }
    case 'file_search_call':
      return json({ queries: item.queries ?? [] })
    case 'code_interpreter_call':
      return json({ code: item.code ?? '' })
    case 'program':
      return { name: 'program', arguments: JSON.stringify({ code: item.code ?? '' }) }
    case 'image_generation_call':
      return json({ prompt: item.revised_prompt ?? '' })
    default:
      return json(item.action ?? item.operation ?? (item.actions && { actions: item.actions }))
  }
}

/** The result of a finished call as text. */
function foundBy(item: HostedItem): string {
  switch (item.type) {
    case 'mcp_call':
      return textOf(item.output ?? item.error)
    case 'code_interpreter_call':
      return textOf(item.outputs)
    case 'image_generation_call':
      return item.result ? 'The image was shown to the user.' : textOf(item.status)
    default:
      return textOf(item.results)
  }
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}
