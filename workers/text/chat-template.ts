import type { Clock } from '#shared/clock.ts'
import type { ChatMessage, TemplateOptions, ToolDefinition } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'

import { BudgetExceededError, WorkBudget } from '../preparation/work-budget.ts'
import { renderTemplate } from './chat-interpreter.ts'
import { compileTemplate } from './compile-template.ts'
import { cutText, type RenderedText } from './content-spans.ts'
import { strftime } from './strftime.ts'
import { chargeValues } from './template-values.ts'
import {
  foldToolsIntoText,
  shortenCallIds,
  toTemplateMessage,
  toTemplateTool,
} from './tool-messages.ts'

/** How a chat is rendered. */
export interface RenderOptions extends TemplateOptions {
  /** Charged for what the template reads, computes and writes; its own when absent. */
  readonly budget?: WorkBudget
}

/** Renders a chat as the text that the model was trained on. */
export interface ChatTemplate {
  /** Throws `invalidRequest` when the template refuses the messages. */
  render(
    messages: readonly ChatMessage[],
    tools: readonly ToolDefinition[],
    options?: RenderOptions,
  ): RenderedText
  /** Whether a variable of this name occurs in an expression or statement of the template. */
  reads(variable: string): boolean
}

/** What `tokenizer_config.json` says about chats; a list holds templates by name. */
interface ChatTemplateSource {
  readonly template: string | readonly { readonly name: string; readonly template: string }[]
  /** `bos_token`, `eos_token` and their like, as a template may use them. */
  readonly specialTokens: Readonly<Record<string, string>>
}

/** Compiles a model's chat template. Throws when the template itself is broken. */
export function createChatTemplate(source: ChatTemplateSource, clock: Clock): ChatTemplate {
  const named =
    typeof source.template === 'string'
      ? new Map([['default', source.template]])
      : new Map(source.template.map(({ name, template }) => [name, template]))
  const plainText = named.get('default') ?? [...named.values()][0]
  if (plainText === undefined) throw new Error('the list of chat templates is empty')
  const plain = compile(plainText)
  const toolText = named.get('tool_use') ?? (mentionsTools(plainText) ? plainText : undefined)
  const withTools = toolText === undefined ? undefined : compile(toolText)
  const names = namesIn([...named.values()].join('\n'))

  return {
    reads: (variable) => names.has(variable),
    render(messages, tools, options = {}) {
      checkVariables(options)
      const { budget = new WorkBudget() } = options
      return withinBudget(() => renderWithin(messages, tools, { ...options, budget }))
    },
  }

  function renderWithin(
    messages: readonly ChatMessage[],
    tools: readonly ToolDefinition[],
    options: BudgetedOptions,
  ): RenderedText {
    chargeValues(tools, options.budget)
    const needsTools = tools.length > 0 || messages.some(isAboutTools)
    if (needsTools && withTools === undefined) {
      const folded = foldToolsIntoText(messages, tools)
      return finish(run(plain, { messages: folded, tools: null }, options), messages, options)
    }
    const variables = {
      messages: acceptedIds(messages, toolText).map((message, index) =>
        toTemplateMessage(message, index, options.budget),
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

/** Templates of Mistral refuse other ids of calls than those of nine letters and digits. */
function acceptedIds(
  messages: readonly ChatMessage[],
  template: string | undefined,
): readonly ChatMessage[] {
  return template?.includes('[TOOL_CALLS]') === true ? shortenCallIds(messages) : messages
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

/** What follows the last message is cut off where the answer is to go on in it. */
function finish(
  whole: RenderedText,
  messages: readonly ChatMessage[],
  { continuesLast = false }: TemplateOptions,
): RenderedText {
  if (!continuesLast) return whole
  const { text: rendered } = whole
  const content = messages.at(-1)?.content ?? ''
  const kept = content.trimStart()
  const start = rendered.lastIndexOf(content.trim())
  // A template may trim the message: then its own spaces are not there to be kept.
  const end = rendered.startsWith(kept, start) ? start + kept.length : start + content.trim().length
  if (start >= 0) return cutText(whole, end)
  throw failure.invalidRequest(
    "Invalid 'continue_final_message': the chat template of this model does not show the last message as it is.",
    { param: 'continue_final_message', code: 'invalid_value' },
  )
}

/** What every template may use; the library's own set cannot be overridden. */
const GLOBALS = {
  ...{ true: true, false: false, none: null, True: true, False: false, None: null },
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

function isAboutTools(message: ChatMessage): boolean {
  return message.role === 'tool' || (message.toolCalls?.length ?? 0) > 0
}
