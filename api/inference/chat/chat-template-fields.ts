import { type Static, Type } from 'typebox'

import { invalidValue, optionalBoolean } from '#api/inference/field-schemas.ts'
import type { Guidance } from '#api/inference/reasoning-fields.ts'
import type { ChatMessage, Hint, TemplateOptions } from '#shared/contracts/completion.ts'

const VARIABLES_MAX = 16
const VARIABLE_LENGTH_MAX = 1024

/** Request fields of other servers of this API that say how the chat template is used. */
export const TEMPLATE_FIELDS = {
  add_generation_prompt: optionalBoolean({
    description: "Open the assistant's turn after the messages; true if absent.",
  }),
  continue_final_message: optionalBoolean({
    default: false,
    description: 'Go on with the last message, which is the beginning of the answer.',
  }),
  chat_template_kwargs: Type.Optional(
    Type.Unsafe<Record<string, string | number | boolean> | null>({
      type: ['object', 'null'],
      maxProperties: VARIABLES_MAX,
      propertyNames: { pattern: '^[A-Za-z_][A-Za-z0-9_]{0,63}$' },
      additionalProperties: {
        type: ['string', 'number', 'boolean'],
        maxLength: VARIABLE_LENGTH_MAX,
      },
      description: "Switches of the model's own chat template, such as `enable_thinking`.",
    }),
  ),
}

const TEMPLATE_BODY = Type.Object(TEMPLATE_FIELDS)

/**
 * How the chat template is used; empty in the usual way. Its variables come before those of
 * `guidance`. Throws what the schema cannot say.
 */
export function templateOptions(
  body: Static<typeof TEMPLATE_BODY>,
  messages: readonly ChatMessage[],
  guidance: Guidance = { variables: {}, hints: [] },
): { readonly template?: TemplateOptions; readonly hints?: readonly Hint[] } {
  const own = body.chat_template_kwargs ?? {}
  const variables = { ...guidance.variables, ...own }
  const hints = [
    ...guidance.hints,
    ...Object.keys(own).map((name) => ({
      field: `chat_template_kwargs.${name}`,
      variables: [name],
    })),
  ]
  const continuesLast = body.continue_final_message === true
  if (continuesLast) checkContinued(body, messages.at(-1))
  const options: TemplateOptions = {
    ...(body.add_generation_prompt === false && { opensAnswer: false }),
    ...(continuesLast && { continuesLast }),
    ...(Object.keys(variables).length > 0 && { variables }),
  }
  return {
    ...(Object.keys(options).length > 0 && { template: options }),
    ...(hints.length > 0 && { hints }),
  }
}

function checkContinued(body: Static<typeof TEMPLATE_BODY>, last: ChatMessage | undefined): void {
  const refuse = (reason: string) => invalidValue('continue_final_message', reason)
  if (body.add_generation_prompt === true) {
    throw refuse("it cannot be true together with 'add_generation_prompt'.")
  }
  const isSpoken = last?.role === 'assistant' && last.toolCalls === undefined
  if (isSpoken && last.content.trim() !== '') return
  throw refuse("it needs a last message with role 'assistant' and some text in its content.")
}
