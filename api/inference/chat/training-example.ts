import type { Static } from 'typebox'

import { schemaCompiler } from '#api/http/validation.ts'
import { invalidValue } from '#api/inference/field-schemas.ts'
import { SchemaBudget } from '#api/inference/input-limits.ts'
import { RequestImages } from '#api/inference/request-images.ts'
import { validationFailure } from '#api/v1/validation-message.ts'
import type { ToolDefinition } from '#shared/contracts/completion.ts'
import type { TrainingExample } from '#shared/contracts/training.ts'
import { Type } from '#shared/schema-types.ts'
import { nullable } from '#shared/schemas.ts'

import { chatMessages, MESSAGE_FIELDS, MESSAGE_RULES, MESSAGES_MAX } from './chat-messages.ts'
import { TOOL_FIELDS, toolPlan } from './chat-tools.ts'

const WEIGHTED_MESSAGE = Type.Object(
  { ...MESSAGE_FIELDS, weight: Type.Optional(nullable(Type.Enum([0, 1], { type: 'integer' }))) },
  MESSAGE_RULES,
)

const CHAT_LINE = Type.Object(
  {
    messages: Type.Array(WEIGHTED_MESSAGE, { minItems: 2, maxItems: MESSAGES_MAX }),
    tools: TOOL_FIELDS.tools,
    functions: TOOL_FIELDS.functions,
    parallel_tool_calls: TOOL_FIELDS.parallel_tool_calls,
  },
  { additionalProperties: false },
)
type ChatLine = Static<typeof CHAT_LINE>

const PAIR_LINE = Type.Object(
  { prompt: Type.String(), completion: Type.String({ minLength: 1 }) },
  { additionalProperties: false },
)

/**
 * Reads one line of a file of training examples: a chat that ends with an answer, or a prompt and
 * its completion. Throws `invalidRequest` that names the field at fault.
 */
export function createExampleReader(): (line: Record<string, unknown>) => TrainingExample {
  const compile = schemaCompiler()
  const isChat = compile(CHAT_LINE)
  const isPair = compile(PAIR_LINE)
  return (line) => {
    if ('prompt' in line || 'completion' in line) {
      if (!isPair(line)) {
        throw validationFailure(isPair.errors ?? [], { value: line, schema: PAIR_LINE })
      }
      return { prompt: String(line.prompt), completion: String(line.completion) }
    }
    if (!isChat(line)) {
      throw validationFailure(isChat.errors ?? [], { value: line, schema: CHAT_LINE })
    }
    return chatExample(line as ChatLine)
  }
}

function chatExample(line: ChatLine): TrainingExample {
  const fields = line.messages
  const images = new RequestImages()
  const messages = chatMessages(fields, images)
  const [image] = images.all
  if (image !== undefined) throw invalidValue(image.path, 'fine-tuning reads only text.')
  const tools = toolPlan(line, new SchemaBudget())?.tools
  for (const [index, { role, weight }] of fields.entries()) {
    if (typeof weight === 'number' && role !== 'assistant') {
      throw invalidValue(
        `messages[${index}].weight`,
        "only messages with role 'assistant' have a weight.",
      )
    }
  }
  const last = fields.length - 1
  if (fields[last]?.role !== 'assistant') {
    throw invalidValue(`messages[${last}].role`, "the last message must have role 'assistant'.")
  }
  if (!fields.some(({ role, weight }) => role === 'assistant' && weight !== 0)) {
    throw invalidValue(
      'messages',
      'every assistant message has weight 0: there is nothing to learn.',
    )
  }
  checkCalls(messages, tools ?? [])
  return {
    messages: messages.map((message, index) => {
      const weight = fields[index]?.weight
      return { ...message, ...(typeof weight === 'number' && { weight }) }
    }),
    ...(tools !== undefined && { tools }),
  }
}

/** A call of a function that the line does not offer would teach the model to invent functions. */
function checkCalls(
  messages: ReturnType<typeof chatMessages>,
  tools: readonly ToolDefinition[],
): void {
  const names = new Set(tools.map(({ name }) => name))
  for (const [index, { toolCalls = [] }] of messages.entries()) {
    const unknown = toolCalls.find(({ name }) => !names.has(name))
    if (unknown === undefined) continue
    throw invalidValue(
      `messages[${index}].tool_calls`,
      `the function '${unknown.name.slice(0, 64)}' is not one of the tools of this line.`,
    )
  }
}
