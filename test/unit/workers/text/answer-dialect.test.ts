import { describe, expect, it } from 'vitest'

import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'
import {
  beginsInReasoning,
  type DialectOptions,
  findDialect,
} from '#workers/text/answer-dialect.ts'

import { FAMILIES } from './chat-families.ts'

const vocabulary = (...tokens: readonly string[]) => ({
  findTokenId: (token: string) => {
    const at = tokens.indexOf(token)
    return at < 0 ? undefined : at
  },
})

type Row = [string, string, readonly string[], AnswerDialect, DialectOptions?]

// Parts of published chat templates.
const ROWS: readonly Row[] = [
  ['a template without tools', '{{ messages }}', [], { calls: 'hermes' }],
  ['Qwen 3', '{{ tools }}<tool_call> </think>', [], { calls: 'hermes', reasoning: 'think' }],
  ['Qwen 2.5', '{{ tools }}<tool_call>', [], { calls: 'hermes' }],
  ['Qwen3-Coder', '{{ tools }}<tool_call><function=', [], { calls: 'qwen3_coder' }],
  [
    'Llama 3.1',
    '{{ tools }}"parameters": dictionary of argument name and its value}<|python_tag|>',
    [],
    { calls: 'llama3_json' },
  ],
  ['Mistral v3', '{{ tools }}[TOOL_CALLS]', [], { calls: 'mistral' }],
  [
    'Magistral',
    '{{ tools }}[TOOL_CALLS][ARGS]',
    ['[THINK]', '[/THINK]'],
    { calls: 'mistral_named', reasoning: 'mistral' },
  ],
  ['Phi-4-mini', "{{ tools }}'<|tool|>' + '<|/tool|>'", [], { calls: 'phi4' }],
  [
    'Granite 3.2',
    '{{ tools }}<|tool_call|> Here is my thought process:',
    [],
    { calls: 'granite', reasoning: 'granite' },
  ],
  [
    'DeepSeek R1',
    "{{ tools }}<｜tool▁sep｜> + '```json'",
    ['<think>', '</think>'],
    { calls: 'deepseek_v3', reasoning: 'think' },
  ],
  ['DeepSeek V3.1', '{{ tools }}<｜tool▁sep｜>', [], { calls: 'deepseek_v31' }],
  [
    'gpt-oss',
    '{{ tools }}<|channel|>analysis<|message|>',
    [],
    { calls: 'harmony', reasoning: 'harmony' },
  ],
  ['FunctionGemma', '{{ tools }}<start_function_call>', [], { calls: 'gemma' }],
  [
    'Gemma 4',
    '{{ tools }}<|tool_call>call:<tool_call|><|channel>',
    [],
    { calls: 'gemma4', reasoning: 'gemma4' },
  ],
  ['GLM-4.6', '{{ tools }}<tool_call></arg_key>\n<arg_value>', [], { calls: 'glm45' }],
  ['GLM-4.7', '{{ tools }}<tool_call><arg_key>', [], { calls: 'glm47' }],
  [
    'Kimi K2',
    '{{ tools }}<|tool_call_begin|><|tool_call_argument_begin|></think>',
    [],
    { calls: 'kimi_k2', reasoning: 'think' },
  ],
  ['MiniMax-M2', "{{ tools }}'minimax:tool_call' + '<invoke name='", [], { calls: 'minimax_m2' }],
  ['MiniCPM5', '{{ tools }}<function name="a"><param name="b">', [], { calls: 'minicpm5' }],
  ['DeepSeek V3.2', "{{ tools }}'｜DSML｜' + 'function_calls>'", [], { calls: 'deepseek_v32' }],
  ['DeepSeek V4', "{{ tools }}'｜DSML｜' + 'tool_calls>'", [], { calls: 'deepseek_v4' }],
  [
    'Seed-OSS',
    '{{ tools }}<seed:tool_call><function=</seed:think>',
    [],
    { calls: 'seed_oss', reasoning: 'seed_oss' },
  ],
  [
    'Command A',
    '{{ tools }}<|START_ACTION|><|START_THINKING|>',
    [],
    { calls: 'cohere', reasoning: 'cohere' },
  ],
  [
    'Apertus',
    '{{ tools }}<|tools_prefix|>',
    ['<|inner_prefix|>', '<|inner_suffix|>'],
    { calls: 'apertus', reasoning: 'apertus' },
  ],
  ['LFM2', '{{ tools }}', ['<|tool_call_start|>', '<|tool_call_end|>'], { calls: 'lfm2' }],
  ['OLMo 3', '{{ tools }}<function_calls>', [], { calls: 'olmo3' }],
  ['Nemotron Nano 2', '{{ tools }}<TOOLCALL>', [], { calls: 'nemotron' }],
  ['Jamba', '{{ tools }}<tool_calls>', [], { calls: 'jamba' }],
  ['GigaChat 3.1', '{{ tools }}<|function_call|>', [], { calls: 'gigachat3' }],
  [
    'what the catalogue says',
    '{{ tools }}<tool_call></think>',
    [],
    { calls: 'pythonic' },
    { toolParser: 'pythonic', reasoningParser: 'none' },
  ],
]

describe('the dialect of a model', () => {
  it.each([...ROWS])('follows from its template: %s', (...row) => {
    const [, template, tokens, expected, options = {}] = row
    expect(findDialect(template, vocabulary(...tokens), options)).toEqual(expected)
  })

  it('follows from the published templates', () => {
    const found = FAMILIES.map(({ name, template, special, tags = [] }) => {
      const { calls, reasoning } = findDialect(template, vocabulary(...special, ...tags))
      return [name.split(' (')[0], calls, reasoning]
    })
    expect(found).toEqual([
      ['Qwen 2.5 and 3', 'hermes', 'think'],
      ['Qwen 3 Coder', 'qwen3_coder', 'think'],
      ['Llama 3', 'hermes', undefined],
      ['Mistral', 'mistral', undefined],
      ['Gemma', 'hermes', undefined],
      ['Phi 3 and 4', 'phi4', undefined],
      ['DeepSeek', 'hermes', 'think'],
      ['Granite', 'granite', undefined],
      ['SmolLM2', 'hermes', undefined],
      ['Zephyr and OLMo', 'hermes', undefined],
      ['Command-R', 'hermes', undefined],
    ])
  })

  it('says whether a prompt has opened the reasoning', () => {
    const dialect = { calls: 'hermes', reasoning: 'think' } as const
    expect(beginsInReasoning(dialect, '<|im_start|>assistant\n<think>\n')).toBe(true)
    expect(beginsInReasoning(dialect, 'assistant\n<think>\n\n</think>\n\n')).toBe(false)
    expect(beginsInReasoning({ calls: 'hermes' }, '<think>')).toBe(false)
  })
})
