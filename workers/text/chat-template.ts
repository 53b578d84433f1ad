import { Environment, Interpreter, Template } from '@huggingface/jinja'

import type { Clock } from '#shared/clock.ts'
import type { ChatMessage, ToolDefinition } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'

import { foldToolsIntoText, toTemplateMessage, toTemplateTool } from './tool-messages.ts'
import { strftime } from './strftime.ts'

/** Renders a chat as the text that the model was trained on. */
export interface ChatTemplate {
  /** Throws `invalidRequest` when the template refuses the messages. */
  render(messages: readonly ChatMessage[], tools: readonly ToolDefinition[]): string
}

/** What `tokenizer_config.json` says about chats; a list holds templates by name. */
export interface ChatTemplateSource {
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
  const plain = new Template(plainText)
  const toolText = named.get('tool_use') ?? (mentionsTools(plainText) ? plainText : undefined)
  const withTools = toolText === undefined ? undefined : new Template(toolText)

  return {
    render(messages, tools) {
      const needsTools = tools.length > 0 || messages.some(isAboutTools)
      if (needsTools && withTools === undefined) {
        return run(plain, { messages: foldToolsIntoText(messages, tools), tools: null })
      }
      return run(needsTools ? (withTools as Template) : plain, {
        messages: messages.map(toTemplateMessage),
        tools: tools.length > 0 ? tools.map(toTemplateTool) : null,
      })
    },
  }

  function run(template: Template, variables: Readonly<Record<string, unknown>>): string {
    try {
      return evaluate(template, {
        ...GLOBALS,
        ...source.specialTokens,
        ...variables,
        add_generation_prompt: true,
        documents: null,
        raise_exception: refuse,
        strftime_now: (format: string) => strftime(format, clock.now()),
      })
    } catch (error) {
      const reason = error instanceof TemplateRefusal ? `: ${error.message}` : ''
      throw failure.invalidRequest(
        `The chat template of this model cannot render these messages${reason}`,
        { param: 'messages', cause: error },
      )
    }
  }
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

function evaluate(template: Template, variables: Readonly<Record<string, unknown>>): string {
  const environment = new Environment()
  for (const [name, value] of Object.entries(variables)) environment.set(name, value)
  return String(new Interpreter(environment).run(template.parsed).value)
}

/** A template's own `raise_exception`; its message is meant for the client. */
class TemplateRefusal extends Error {}

function refuse(reason: string): never {
  throw new TemplateRefusal(reason)
}

function mentionsTools(template: string): boolean {
  return /\btools\b/.test(template)
}

function isAboutTools(message: ChatMessage): boolean {
  return message.role === 'tool' || (message.toolCalls?.length ?? 0) > 0
}
