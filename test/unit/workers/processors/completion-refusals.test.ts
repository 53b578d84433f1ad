import { describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'

import { BASE, encode, runJob, text } from './completion-job.ts'
import { babble, scriptedEngine } from './scripted-engine.ts'

const LONG = 'x'.repeat(300)
const longTokens = encode(LONG).length
const chat = (content: string, rest = {}) => ({
  form: 'chat' as const,
  messages: [{ role: 'user' as const, content }],
  ...rest,
})
const chatTokens = encode(`<|im_start|>user\n${LONG}<|im_end|>\n<|im_start|>assistant\n`).length
const TOOL = {
  name: 'weather',
  parameters: { type: 'object', not: {} },
  schemaPath: 'tools[0].function.parameters',
}

interface Case {
  readonly input: Partial<GenerateInput>
  readonly param: string
  readonly code?: string
  readonly message: string
}

const CASES: readonly Case[] = [
  {
    input: { prompts: [{ form: 'text', text: LONG }] },
    param: 'prompt',
    code: 'context_length_exceeded',
    message:
      "This model's maximum context length is 256 tokens, however you requested " +
      `${longTokens + 16} tokens (${longTokens} in your prompt; 16 for the completion). ` +
      'Please reduce your prompt; or completion length.',
  },
  {
    input: { prompts: [chat(LONG)], maxTokens: 10 },
    param: 'messages',
    code: 'context_length_exceeded',
    message:
      "This model's maximum context length is 256 tokens. However, you requested " +
      `${chatTokens + 10} tokens (${chatTokens} in the messages, 10 in the completion). ` +
      'Please reduce the length of the messages or completion.',
  },
  {
    input: { prompts: [chat(LONG)], maxTokens: null },
    param: 'messages',
    code: 'context_length_exceeded',
    message:
      "This model's maximum context length is 256 tokens. However, your messages resulted in " +
      `${chatTokens} tokens. Please reduce the length of the messages.`,
  },
  {
    // Known without the template, which takes its time for each.
    input: {
      prompts: [{ form: 'chat', messages: Array(2048).fill({ role: 'user', content: 'Hi' }) }],
      maxTokens: null,
    },
    param: 'messages',
    code: 'context_length_exceeded',
    message: 'your messages resulted in 2048 tokens',
  },
  {
    input: { prompts: [{ form: 'text', text: 'y'.repeat(10_000_000) }] },
    param: 'prompt',
    code: 'context_length_exceeded',
    message:
      "This model's maximum context length is 256 tokens, however you requested 10000016 tokens",
  },
  {
    input: { prompts: [{ form: 'tokenIds', tokenIds: [5, 320] }] },
    param: 'prompt',
    message:
      "Invalid 'prompt': 320 is not a token id of this model (out of vocabulary). Expected integers from 0 to 319, as it has 320 tokens.",
  },
  {
    input: { prompts: [{ form: 'tokenIds', tokenIds: [-1] }] },
    param: 'prompt',
    message: "Invalid 'prompt': -1 is not a token id",
  },
  {
    input: { sampling: { ...BASE.sampling, logitBias: { 320: 1 } } },
    param: 'logit_bias',
    message: "Invalid 'logit_bias': '320' is not a token id of this model",
  },
  {
    input: { ending: { stopTokenIds: [5, 320] } },
    param: 'stop_token_ids',
    message: "Invalid 'stop_token_ids': 320 is not a token id of this model",
  },
  {
    input: { prompts: [chat('Hi', { template: { variables: { messages: false } } })] },
    param: 'chat_template_kwargs',
    message: "'messages' cannot be set, because the chat template sets it",
  },
  {
    input: { prompts: [chat('Hi', { toolChoice: 'required' })] },
    param: 'tool_choice',
    message: "Invalid 'tool_choice': 'required' needs at least one tool",
  },
  {
    input: { prompts: [chat('Hi', { tools: [TOOL], toolChoice: { name: 'other' } })] },
    param: 'tool_choice',
    message: "Invalid 'tool_choice': there is no tool named 'other'",
  },
  {
    input: {
      prompts: [chat('Hi', { tools: [{ ...TOOL, isStrict: true }], toolChoice: 'required' })],
    },
    param: 'tools[0].function.parameters',
    code: 'invalid_json_schema',
    message:
      "Invalid schema at 'tools[0].function.parameters': the keyword 'not' is not supported.",
  },
  {
    input: { responseFormat: { type: 'jsonSchema', schema: { type: 'rune' }, isStrict: true } },
    param: 'response_format.json_schema.schema',
    code: 'invalid_json_schema',
    message: "Invalid schema at 'response_format.json_schema.schema': there is no type 'rune'.",
  },
  {
    input: {
      responseFormat: {
        type: 'jsonSchema',
        schema: { type: 'rune' },
        isStrict: true,
        path: 'text.format.schema',
      },
    },
    param: 'text.format.schema',
    code: 'invalid_json_schema',
    message: "Invalid schema at 'text.format.schema': there is no type 'rune'.",
  },
  {
    input: {
      prompts: [
        chat('Hi', {
          tools: [{ ...TOOL, isStrict: true, schemaPath: 'tools[3].format.definition' }],
        }),
      ],
    },
    param: 'tools[3].format.definition',
    code: 'invalid_json_schema',
    message: "Invalid schema at 'tools[3].format.definition': the keyword 'not' is not supported.",
  },
  {
    input: {
      responseFormat: {
        type: 'jsonSchema',
        schema: { type: 'string', pattern: '(((a?){999}){999}){999}' },
        isStrict: true,
      },
    },
    param: 'response_format.json_schema.schema',
    message: 'The schema is too ambiguous to be enforced while decoding.',
  },
]

describe('a completion job refuses', () => {
  it.each(CASES)('$param with "$message"', async ({ input, param, code, message }) => {
    const engine = scriptedEngine(babble)
    await expect(runJob(input, { engine })).rejects.toMatchObject({
      kind: 'invalidRequest',
      param,
      ...(code !== undefined && { code }),
      message: expect.stringContaining(message),
    })
    expect(engine.requests).toEqual([])
  })

  it('a chat with a model that has no chat template', async () => {
    const base = { ...text, chatTemplate: undefined }
    const engine = scriptedEngine(babble)
    await expect(runJob({ prompts: [chat('Hi')] }, { engine, text: base })).rejects.toMatchObject({
      kind: 'invalidRequest',
      message: expect.stringContaining('This is not a chat model'),
    })
  })

  it('but edits with such a model as plain text', async () => {
    const engine = scriptedEngine(babble)
    const edit = { form: 'edit' as const, instruction: 'Shout.', input: 'hello' }
    await runJob({ prompts: [edit] }, { engine, text: { ...text, chatTemplate: undefined } })
    expect(engine.requests[0]?.promptTokenIds).toEqual(encode('Shout.\nhello\n'))
  })
})
