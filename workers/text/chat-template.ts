import { createHash } from 'node:crypto'

import type { Clock } from '#shared/clock.ts'
import type {
  ChatMessage,
  ChatToolCall,
  TemplateOptions,
  ToolDefinition,
} from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { JSON_TEXT_LIMITS, judgeJson } from '#shared/json.ts'
import { BudgetExceededError, WorkBudget } from '#workers/preparation/work-budget.ts'

import { renderTemplate } from './chat-interpreter.ts'
import { compileTemplate } from './compile-template.ts'
import { cutText, type RenderedText } from './content-spans.ts'
import { createTurnReader, type Turn } from './message-parts.ts'
import { strftime } from './strftime.ts'
import { chargeValues, wholeFloat } from './template-values.ts'

/** How a chat is rendered. */
export interface RenderOptions extends TemplateOptions {
  /** Charged for the template's reads, computations and output; its own when absent. */
  readonly budget?: WorkBudget
}

/** A chat message; templates of rerankers use the roles `query` and `document`. */
export type TemplateMessage = Omit<ChatMessage, 'role'> & { readonly role: string }

/** Renders a chat as the text that the model was trained on. */
export interface ChatTemplate {
  /** Throws `invalidRequest` when the template refuses the messages. */
  render(
    messages: readonly TemplateMessage[],
    tools: readonly ToolDefinition[],
    options?: RenderOptions,
  ): RenderedText
  /** Whether a variable of this name occurs in an expression or statement of the template. */
  reads(variable: string): boolean
}

/** The chat settings of `tokenizer_config.json`; a list holds templates by name. */
interface ChatTemplateSource {
  readonly template: string | readonly { readonly name: string; readonly template: string }[]
  /** `bos_token`, `eos_token` and similar, for use in the template. */
  readonly specialTokens: Readonly<Record<string, string>>
}

/** Compiles a model's chat template. Throws when the template is malformed. */
export function createChatTemplate(source: ChatTemplateSource, clock: Clock): ChatTemplate {
  const named = templatesByName(source)
  const plainText = named.get('default') ?? [...named.values()][0]
  if (plainText === undefined) throw new Error('the list of chat templates is empty')
  const plain = compile(plainText)
  const toolText = named.get('tool_use') ?? (mentionsTools(plainText) ? plainText : undefined)
  const withTools = toolText === undefined ? undefined : compile(toolText)
  const names = namesIn([...named.values()].join('\n'))
  const toTemplateTurn = createTurnReader((message) => {
    return run(plain, { messages: [message], tools: null }, { budget: new WorkBudget() }).text
  })

  return {
    reads: (variable) => names.has(variable),
    render(messages, tools, options = {}) {
      checkVariables(options)
      const { budget = new WorkBudget() } = options
      return withinBudget(() => renderWithin(messages, tools, { ...options, budget }))
    },
  }

  function renderWithin(
    messages: readonly TemplateMessage[],
    tools: readonly ToolDefinition[],
    options: BudgetedOptions,
  ): RenderedText {
    chargeValues(tools, options.budget)
    const needsTools = tools.length > 0 || messages.some(isAboutTools)
    if (needsTools && withTools === undefined) {
      const folded = foldToolsIntoText(messages, tools).map(toTemplateTurn)
      return finish(run(plain, { messages: folded, tools: null }, options), messages, options)
    }
    const variables = {
      messages: acceptedIds(messages, toolText).map((message, index) =>
        toTemplateMessage(message, toTemplateTurn(message), { index, budget: options.budget }),
      ),
      tools: tools.length > 0 ? tools.map(toTemplateTool) : null,
    }
    const rendered = run(needsTools ? (withTools as Compiled) : plain, variables, options)
    return finish(rendered, messages, options)
  }

  function run(
    template: Compiled,
    variables: Readonly<Record<string, unknown>>,
    options: BudgetedOptions,
  ): RenderedText {
    const { opensAnswer = true, continuesLast = false, variables: switches, budget } = options
    try {
      chargeValues([variables, switches], budget)
      const own = {
        ...GLOBALS,
        ...source.specialTokens,
        add_generation_prompt: opensAnswer && !continuesLast,
        documents: null,
        raise_exception: refuse,
        strftime_now: (format: string) => strftime(format, clock.now()),
      }
      return renderTemplate(template, { own, supplied: { ...switches, ...variables } }, budget)
    } catch (error) {
      if (error instanceof BudgetExceededError) throw error
      const reason = error instanceof TemplateRefusal ? `: ${error.message}` : ''
      throw failure.invalidRequest(
        `The chat template of this model cannot render these messages${reason}`,
        { param: 'messages', cause: error },
      )
    }
  }
}

function templatesByName({ template }: ChatTemplateSource): ReadonlyMap<string, string> {
  if (typeof template === 'string') return new Map([['default', template]])
  return new Map(template.map(({ name, template: text }) => [name, text]))
}

/**
 * Templates of Mistral only accept call ids of nine letters and digits; those of Kimi write the id
 * instead of the name of the function.
 */
function acceptedIds(
  messages: readonly TemplateMessage[],
  template = '',
): readonly TemplateMessage[] {
  if (template.includes('[TOOL_CALLS]')) return withCallIds(messages, ({ id }) => shortId(id))
  if (!template.includes('<|tool_call_argument_begin|>')) return messages
  let count = 0
  return withCallIds(messages, ({ name, id }) => {
    count += 1
    return NUMBERED_ID.test(id) ? id : `functions.${name}:${count - 1}`
  })
}

type BudgetedOptions = TemplateOptions & { readonly budget: WorkBudget }

function withinBudget(render: () => RenderedText): RenderedText {
  try {
    return render()
  } catch (error) {
    if (!(error instanceof BudgetExceededError)) throw error
    throw failure.invalidRequest(
      'The messages take too long to prepare. Please send fewer values in tools and tool calls, or fewer messages.',
      { param: 'messages', code: 'prompt_too_complex', cause: error },
    )
  }
}

/** A variable that the template never reads has no effect; the template's own names are refused. */
function checkVariables({ variables = {} }: TemplateOptions): void {
  const own = Object.keys(variables).find((name) => OWN_NAMES.has(name))
  if (own === undefined) return
  throw failure.invalidRequest(
    `Invalid 'chat_template_kwargs': '${own}' cannot be set, because the chat template sets it.`,
    { param: 'chat_template_kwargs', code: 'invalid_value' },
  )
}

/** Cuts off the text after the last message if the answer continues it. */
function finish(
  whole: RenderedText,
  messages: readonly TemplateMessage[],
  { continuesLast = false }: TemplateOptions,
): RenderedText {
  if (!continuesLast) return whole
  const { text: rendered } = whole
  const content = messages.at(-1)?.content ?? ''
  const kept = content.trimStart()
  const start = rendered.lastIndexOf(content.trim())
  // A template may trim the message, which removes its own spaces.
  const end = rendered.startsWith(kept, start) ? start + kept.length : start + content.trim().length
  if (start >= 0) return cutText(whole, end)
  throw failure.invalidRequest(
    "Invalid 'continue_final_message': the chat template of this model does not show the last message as it is.",
    { param: 'continue_final_message', code: 'invalid_value' },
  )
}

/** Globals of every template, which override those of the library. */
const GLOBALS = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  range: (first: number, end?: number, step = 1): number[] => {
    const [from, to] = end === undefined ? [0, first] : [first, end]
    const count = Math.min(Math.max(Math.ceil((to - from) / step), 0), RANGE_ENTRIES_MAX)
    return Array.from({ length: count }, (_, index) => from + index * step)
  },
}
const RANGE_ENTRIES_MAX = 100_000
/** Set by the server alone. */
const OWN_NAMES = new Set([
  ...['messages', 'tools', 'documents', 'add_generation_prompt', 'raise_exception', 'strftime_now'],
  ...Object.keys(GLOBALS),
])

type Compiled = ReturnType<typeof compileTemplate>

const TEMPLATE_LENGTH_MAX = 1 << 20 // characters; published templates have some 20,000

function compile(text: string): Compiled {
  if (text.length > TEMPLATE_LENGTH_MAX) throw new Error('the chat template is too long')
  try {
    return compileTemplate(text)
  } catch (error) {
    throw new Error(`the chat template cannot be read: ${(error as Error).message}`, {
      cause: error,
    })
  }
}

/** A template's own `raise_exception`; its message is meant for the client. */
class TemplateRefusal extends Error {}

function refuse(reason: string): never {
  throw new TemplateRefusal(reason)
}

function namesIn(text: string): ReadonlySet<string> {
  const code = text.match(/\{[{%](?:(?!\{[{%])[\s\S])*?[%}]\}/g) ?? []
  return new Set(code.join(' ').match(/[A-Za-z_]\w*/g))
}

function mentionsTools(template: string): boolean {
  return /\btools\b/.test(template)
}

function isAboutTools(message: TemplateMessage): boolean {
  return message.role === 'tool' || (message.toolCalls?.length ?? 0) > 0
}

/** The tags of the Hermes format, which is used for models without their own format of tools. */
const TOOL_CALL_OPENING = '<tool_call>\n'
const TOOL_CALL_CLOSING = '\n</tool_call>'

/**
 * A message with the field names of chat templates. Throws `invalidRequest` for the arguments of a
 * call that exceed the limits of JSON in a string.
 */
function toTemplateMessage(
  message: TemplateMessage,
  turn: object,
  { index, budget }: { readonly index: number; readonly budget: WorkBudget },
): Record<string, unknown> {
  const { toolCalls = [] } = message
  const calls = toolCalls.map((call, place) =>
    toTemplateCall(call, `messages[${index}].tool_calls[${place}].function.arguments`, budget),
  )
  return {
    ...turn,
    ...reasoningFields(message),
    ...(message.name !== undefined && { name: message.name }),
    ...(message.toolCallId !== undefined && { tool_call_id: message.toolCallId }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
}

/** The reasoning under the names by which templates read it. */
function reasoningFields({ reasoning, content, toolCalls = [] }: TemplateMessage): object {
  if (reasoning === undefined) return {}
  const names = { reasoning_content: reasoning, reasoning }
  // The template of gpt-oss refuses `thinking` beside the content of a message with calls.
  return toolCalls.length > 0 && content !== '' ? names : { ...names, thinking: reasoning }
}

/** The ids that templates of Mistral accept. */
const SHORT_ID = /^[A-Za-z0-9]{9}$/

/** The ids that templates of Kimi show: a function and the place of the call in the chat. */
const NUMBERED_ID = /^functions\.[\w.-]+:\d+$/

/** The same messages with other call ids; equal ids stay equal. */
function withCallIds(
  messages: readonly TemplateMessage[],
  idOf: (call: ChatToolCall) => string,
): readonly TemplateMessage[] {
  const ids = new Map<string, string>()
  for (const call of messages.flatMap(({ toolCalls = [] }) => toolCalls)) {
    if (!ids.has(call.id)) ids.set(call.id, idOf(call))
  }
  const known = (id: string): string => ids.get(id) ?? id
  return messages.map((message) => ({
    ...message,
    ...(message.toolCallId !== undefined && { toolCallId: known(message.toolCallId) }),
    ...(message.toolCalls !== undefined && {
      toolCalls: message.toolCalls.map((call) => ({ ...call, id: known(call.id) })),
    }),
  }))
}

function shortId(id: string): string {
  return SHORT_ID.test(id) ? id : createHash('sha256').update(id).digest('hex').slice(0, 9)
}

/** A tool with the field names of chat templates. */
function toTemplateTool(tool: ToolDefinition): Record<string, unknown> {
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
 * For templates that only support roles and contents: the tools join the system turn, calls become
 * text of the assistant's turn, and results become a turn of the user, each in Hermes tags.
 */
function foldToolsIntoText(
  messages: readonly TemplateMessage[],
  tools: readonly ToolDefinition[],
): readonly Turn[] {
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

function foldMessage({ role, content, images, toolCalls = [] }: TemplateMessage): Turn {
  if (role === 'tool') {
    const opening = '<tool_response>\n'
    const moved = images?.map((image) => ({ ...image, at: image.at + opening.length }))
    const folded = `${opening}${content}\n</tool_response>`
    return { role: 'user', content: folded, ...(moved && { images: moved }) }
  }
  const calls = toolCalls.map(presentCall)
  const folded = [content, ...calls].filter(Boolean).join('\n')
  return { role, content: folded, ...(images && { images }) }
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

/** Templates serialize arguments as JSON; other text is inserted unchanged. */
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
    // The client sends back a model's earlier answer, which may have been cut off.
    return undefined
  }
}
