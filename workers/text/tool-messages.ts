import { createHash } from 'node:crypto'

import type { ChatMessage, ChatToolCall, ToolDefinition } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { JSON_TEXT_LIMITS, judgeJson } from '#shared/judge-json.ts'

import type { WorkBudget } from '../preparation/work-budget.ts'
import { chargeValues, wholeFloat } from './template-values.ts'

/** The tags of the Hermes form, in which models without a form of their own learn about tools. */
const TOOL_CALL_OPENING = '<tool_call>\n'
const TOOL_CALL_CLOSING = '\n</tool_call>'

/**
 * A message with the field names that chat templates read. Throws `invalidRequest` for the arguments of
 * a call that exceed the limits of JSON in a string.
 */
export function toTemplateMessage(
  message: ChatMessage,
  index: number,
  budget: WorkBudget,
): Record<string, unknown> {
  const { toolCalls = [] } = message
  const calls = toolCalls.map((call, place) =>
    toTemplateCall(call, `messages[${index}].tool_calls[${place}].function.arguments`, budget),
  )
  return {
    role: message.role,
    content: message.content,
    ...(message.name !== undefined && { name: message.name }),
    ...(message.toolCallId !== undefined && { tool_call_id: message.toolCallId }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
}

/** The ids that templates of Mistral accept. */
const SHORT_ID = /^[A-Za-z0-9]{9}$/

/** The same messages with ids of calls that any template accepts; equal ids stay equal. */
export function shortenCallIds(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return messages.map((message) => ({
    ...message,
    ...(message.toolCallId !== undefined && { toolCallId: shortId(message.toolCallId) }),
    ...(message.toolCalls !== undefined && {
      toolCalls: message.toolCalls.map((call) => ({ ...call, id: shortId(call.id) })),
    }),
  }))
}

function shortId(id: string): string {
  return SHORT_ID.test(id) ? id : createHash('sha256').update(id).digest('hex').slice(0, 9)
}

/** A tool with the field names that chat templates read. */
export function toTemplateTool(tool: ToolDefinition): Record<string, unknown> {
  return {
    type: 'function',
    function: {
      name: tool.name,
      ...(tool.description !== undefined && { description: tool.description }),
      parameters: tool.parameters ?? { type: 'object', properties: {} },
    },
  }
}

/**
 * For templates that know only roles and contents: the tools join the system turn, calls become
 * text of the assistant's turn, and results become a turn of the user, each in Hermes tags.
 */
export function foldToolsIntoText(
  messages: readonly ChatMessage[],
  tools: readonly ToolDefinition[],
): readonly Record<string, unknown>[] {
  const folded = messages.map(foldMessage)
  if (tools.length === 0) return folded
  const listed = tools.map((tool) => JSON.stringify(toTemplateTool(tool))).join('\n')
  const about =
    'You may call one or more functions to assist with the user query.\n' +
    `<tools>\n${listed}\n</tools>\n` +
    'For each function call, return a JSON object with the function name and arguments within ' +
    'tags:\n<tool_call>\n{"name": <function name>, "arguments": <arguments as JSON>}\n</tool_call>'
  const first = folded[0]
  return first?.role === 'system'
    ? [{ ...first, content: `${first.content}\n\n${about}` }, ...folded.slice(1)]
    : [{ role: 'system', content: about }, ...folded]
}

function foldMessage(message: ChatMessage): { role: string; content: string } {
  if (message.role === 'tool') {
    return { role: 'user', content: `<tool_response>\n${message.content}\n</tool_response>` }
  }
  const calls = (message.toolCalls ?? []).map(presentCall)
  return { role: message.role, content: [message.content, ...calls].filter(Boolean).join('\n') }
}

function presentCall(call: ChatToolCall): string {
  const name = JSON.stringify(call.name)
  return `${TOOL_CALL_OPENING}{"name": ${name}, "arguments": ${call.arguments}}${TOOL_CALL_CLOSING}`
}

function toTemplateCall(
  call: ChatToolCall,
  param: string,
  budget: WorkBudget,
): Record<string, unknown> {
  return {
    id: call.id,
    type: 'function',
    function: { name: call.name, arguments: parseArguments(call.arguments, param, budget) },
  }
}

/** `1.0` keeps its form: Python distinguishes it from `1`. */
function keepFloat(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  const isFloat = Number.isInteger(value) && /[.eE]/.test(context?.source ?? '')
  return isFloat ? wholeFloat(value as number) : value
}

/** Templates write arguments as JSON themselves; text that is no JSON object goes in unchanged. */
function parseArguments(text: string, param: string, budget: WorkBudget): unknown {
  const fault = judgeJson(Buffer.from(text), JSON_TEXT_LIMITS)
  if (fault !== undefined) {
    throw failure.invalidRequest(`Invalid '${param}': ${fault.message}`, {
      param,
      code: 'json_too_complex',
    })
  }
  budget.chargeText(text.length)
  const value = parseJson(text)
  if (typeof value !== 'object' || value === null) return text
  chargeValues(value, budget)
  return value
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text, keepFloat)
  } catch {
    // The client sends back what a model once wrote, which may have been cut.
    return undefined
  }
}
