import { describe, expect, it } from 'vitest'

import { answerParser } from '#api/inference/answers/answer-parser.ts'
import type { ToolPlan } from '#api/inference/chat/chat-tools.ts'
import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'

const WEATHER = {
  name: 'get_weather',
  parameters: {
    type: 'object',
    properties: {
      city: { type: 'string' },
      days: { type: 'integer' },
      exact: { type: 'boolean' },
      level: { enum: [1, 'all'] },
      unit: { enum: ['1', '2'] },
      free: true,
    },
  },
}
const TOOLS: ToolPlan = {
  tools: [WEATHER, { name: 'now' }],
  choice: 'auto',
  callsMax: 128,
  isLegacy: false,
}
const PARIS = { name: 'get_weather', arguments: { city: 'Paris', days: 2 } }
const NOW = { name: 'now', arguments: {} }

interface Case {
  readonly title: string
  readonly dialect: AnswerDialect
  readonly text: string
  readonly content?: string
  readonly reasoning?: string
  readonly calls?: readonly { readonly name: string; readonly arguments: unknown }[]
  readonly tools?: ToolPlan | undefined
}

const JSON_PARIS = '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}'
const JSON_NOW = '{"name": "now", "arguments": {}}'

// The texts follow the published chat templates and the parsers of vLLM 0.11.
const CALLS: readonly Case[] = [
  {
    title: 'Hermes and Qwen',
    dialect: { calls: 'hermes' },
    text: `Sure.\n<tool_call>\n${JSON_PARIS}\n</tool_call>\n<tool_call>\n${JSON_NOW}\n</tool_call>`,
    content: 'Sure.',
    calls: [PARIS, NOW],
  },
  {
    title: 'Hermes calls in a list',
    dialect: { calls: 'hermes' },
    text: `<tool_call>[${JSON_PARIS}, ${JSON_NOW}]</tool_call>`,
    calls: [PARIS, NOW],
  },
  {
    title: 'Llama 3 with JSON, bare',
    dialect: { calls: 'llama3_json' },
    text: '{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}; {"name": "now", "parameters": {}}',
    calls: [PARIS, NOW],
  },
  {
    title: 'Llama 3 with JSON behind its token',
    dialect: { calls: 'llama3_json' },
    text: '<|python_tag|>{"name": "now", "parameters": {}}',
    calls: [NOW],
  },
  {
    title: 'an object of Llama 3 that is not a call',
    dialect: { calls: 'llama3_json' },
    text: '{"name": "Ada", "parameters": {"born": 1815}} is a person {"name": "now", "parameters": {}}',
    content:
      '{"name": "Ada", "parameters": {"born": 1815}} is a person {"name": "now", "parameters": {}}',
  },
  {
    title: 'a cut object of Llama 3 that is not a call',
    dialect: { calls: 'llama3_json' },
    text: ' {"answer": 4',
    content: ' {"answer": 4',
  },
  {
    title: 'Llama 3.2 with Python',
    dialect: { calls: 'pythonic' },
    text: "[get_weather(city='Pa\\'ris, (F)', days=2), now()]",
    calls: [{ name: 'get_weather', arguments: { city: "Pa'ris, (F)", days: 2 } }, NOW],
  },
  {
    title: 'Llama 4 with Python between tokens',
    dialect: { calls: 'pythonic' },
    text: '<|python_start|>[get_weather(city="Paris", days=[1, {"a": None}, True])]<|python_end|>',
    calls: [{ name: 'get_weather', arguments: { city: 'Paris', days: [1, { a: null }, true] } }],
  },
  {
    title: 'a list that is not a call in Python',
    dialect: { calls: 'pythonic' },
    text: '[see (1)] and [get_weather(city="x")]',
    content: '[see (1)] and [get_weather(city="x")]',
  },
  {
    title: 'a function that is not offered in Python',
    dialect: { calls: 'pythonic' },
    text: '[rm(path="/")]',
    content: '[rm(path="/")]',
  },
  {
    title: 'Mistral with a list',
    dialect: { calls: 'mistral' },
    text: `[TOOL_CALLS] [${JSON_PARIS}, {"name": "now", "arguments": {}, "id": "abcdefghi"}]`,
    calls: [PARIS, NOW],
  },
  {
    title: 'Mistral with names',
    dialect: { calls: 'mistral_named' },
    text: 'So:[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 2}[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}',
    content: 'So:',
    calls: [PARIS, NOW],
  },
  {
    title: 'Mistral with names and nothing between',
    dialect: { calls: 'mistral' },
    text: '[TOOL_CALLS]now{}',
    calls: [NOW],
  },
  {
    title: 'FunctionGemma',
    dialect: { calls: 'gemma' },
    text: '<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:2}<end_function_call><start_function_call>call:now{}<end_function_call>',
    calls: [PARIS, NOW],
  },
  {
    title: 'Gemma 4',
    dialect: { calls: 'gemma4' },
    text: '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:[1,{a:true}]}<tool_call|>',
    calls: [{ name: 'get_weather', arguments: { city: 'Paris', days: [1, { a: true }] } }],
  },
  {
    title: 'Phi-4-mini',
    dialect: { calls: 'phi4' },
    text: `<|tool_call|>[${JSON_PARIS}]<|/tool_call|>`,
    calls: [PARIS],
  },
  {
    title: 'Phi-4-mini with its word',
    dialect: { calls: 'phi4' },
    text: `functools[${JSON_PARIS}, ${JSON_NOW}]`,
    calls: [PARIS, NOW],
  },
  {
    title: 'the word of Phi-4-mini in a text',
    dialect: { calls: 'phi4' },
    text: 'Import functools first, [1] then functools[0].',
    content: 'Import functools first, [1] then functools[0].',
  },
  {
    title: 'Granite',
    dialect: { calls: 'granite' },
    text: `<|tool_call|>[${JSON_PARIS}, ${JSON_NOW}]`,
    calls: [PARIS, NOW],
  },
  {
    title: 'DeepSeek V3',
    dialect: { calls: 'deepseek_v3' },
    text: 'Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris", "days": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    content: 'Hm.',
    calls: [PARIS, NOW],
  },
  {
    title: 'DeepSeek V3.1',
    dialect: { calls: 'deepseek_v31' },
    text: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris", "days": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    calls: [PARIS],
  },
  {
    title: 'Qwen3-Coder',
    dialect: { calls: 'qwen3_coder' },
    text: '<tool_call>\n<function=get_weather>\n<parameter=city>\nPa\n"ris"\n</parameter>\n<parameter=days>\n2\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>',
    calls: [{ name: 'get_weather', arguments: { city: 'Pa\n"ris"', days: 2, exact: true } }, NOW],
  },
  {
    title: 'Qwen3-Coder with values whose schema states no type',
    dialect: { calls: 'qwen3_coder' },
    text: '<tool_call>\n<function=get_weather>\n<parameter=level>\n1\n</parameter>\n<parameter=unit>\n1\n</parameter>\n<parameter=free>\n1\n</parameter>\n</function>\n</tool_call>',
    calls: [{ name: 'get_weather', arguments: { level: 1, unit: '1', free: '1' } }],
  },
  {
    title: 'gpt-oss',
    dialect: { calls: 'harmony', reasoning: 'harmony' },
    text: '<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris", "days": 2}',
    reasoning: 'Need it.',
    calls: [PARIS],
  },
  {
    title: 'gpt-oss with the recipient first',
    dialect: { calls: 'harmony', reasoning: 'harmony' },
    text: ' to=functions.now<|channel|>commentary json<|message|>{}<|call|>',
    calls: [NOW],
  },
]

const REASONING: readonly Case[] = [
  {
    title: 'thoughts between tags',
    dialect: { calls: 'hermes', reasoning: 'think' },
    text: '<think>\n1 < 2 </thin> so\n</think>\n\nYes. ',
    reasoning: '1 < 2 </thin> so',
    content: 'Yes. ',
  },
  {
    title: 'thoughts that the prompt has opened, and a call',
    dialect: { calls: 'hermes', reasoning: 'think', beginsInReasoning: true },
    text: `Call it.</think>${' \n'}<tool_call>${JSON_NOW}</tool_call>`,
    reasoning: 'Call it.',
    calls: [NOW],
  },
  {
    title: 'empty thoughts',
    dialect: { calls: 'hermes', reasoning: 'think' },
    text: '<think>\n\n</think>\n\nHi',
    content: 'Hi',
  },
  {
    title: 'an answer without thoughts',
    dialect: { calls: 'hermes', reasoning: 'think' },
    text: 'a <think> b',
    content: 'a <think> b',
  },
  {
    title: 'thoughts that were cut off',
    dialect: { calls: 'hermes', reasoning: 'think' },
    text: '<think>so far ',
    reasoning: 'so far ',
  },
  {
    title: 'thoughts of Mistral',
    dialect: { calls: 'mistral', reasoning: 'mistral' },
    text: `[THINK]Hm.[/THINK]Well.[TOOL_CALLS][${JSON_NOW}]`,
    reasoning: 'Hm.',
    content: 'Well.',
    calls: [NOW],
  },
  {
    title: 'thoughts of Granite',
    dialect: { calls: 'granite', reasoning: 'granite' },
    text: "Here's my thought process: a b\nHere is my response: c",
    reasoning: 'a b',
    content: 'c',
  },
  {
    title: 'thoughts of Gemma 4',
    dialect: { calls: 'gemma4', reasoning: 'gemma4' },
    text: '<|channel>thought\na b<channel|>c',
    reasoning: 'a b',
    content: 'c',
  },
  {
    title: 'the channels of gpt-oss',
    dialect: { calls: 'harmony', reasoning: 'harmony' },
    text: '<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Done.',
    reasoning: 'Think.',
    content: 'Done.',
    tools: undefined,
  },
  {
    title: 'plain text of gpt-oss',
    dialect: { calls: 'harmony', reasoning: 'harmony' },
    text: 'Just to say.',
    content: 'Just to say.',
    tools: undefined,
  },
]

/** The text whole, by the letter, in threes, and cut once at each place. */
function* cuts(text: string): Generator<readonly string[]> {
  yield [text]
  yield [...text]
  yield text.match(/[\s\S]{1,3}/g) ?? []
  for (let at = 1; at < text.length; at += 1) yield [text.slice(0, at), text.slice(at)]
}

function read(pieces: readonly string[], { dialect, ...entry }: Case) {
  const parser = answerParser('tools' in entry ? entry.tools : TOOLS, dialect)
  if (parser === undefined) throw new Error('there is nothing to parse')
  const found = { content: '', reasoning: '', calls: [] as { name: string; arguments: string }[] }
  for (const part of [...pieces.flatMap((piece) => parser.push(piece)), ...parser.finish()]) {
    if (part.type === 'content' || part.type === 'reasoning') found[part.type] += part.text
    else if (part.type === 'callStart') found.calls.push({ name: part.name, arguments: '' })
    else (found.calls[part.index] as { arguments: string }).arguments += part.text
  }
  return found
}

describe('answers of a family', () => {
  it.each([...CALLS, ...REASONING])('read $title, cut at any place', (entry) => {
    const { content = '', reasoning = '', calls = [] } = entry
    for (const pieces of cuts(entry.text)) {
      const found = read(pieces, entry)
      const parsed = found.calls.map((call) => ({ ...call, arguments: JSON.parse(call.arguments) }))
      const shown = { content: found.content, reasoning: found.reasoning, calls: parsed }
      expect(shown, pieces.join('|')).toEqual({ content, reasoning, calls })
    }
  })

  it('stream the arguments of calls before they are whole', () => {
    const streamed = CALLS.filter(({ dialect, calls = [] }) => {
      return calls.length > 0 && !dialect.calls.startsWith('gemma')
    })
    for (const entry of streamed) {
      const parser = answerParser(TOOLS, entry.dialect)
      const parts = [...entry.text].flatMap((letter) => parser?.push(letter) ?? [])
      const pieces = parts.filter((part) => part.type === 'callArguments' && part.index === 0)
      const isEmpty = JSON.stringify(entry.calls?.[0]?.arguments) === '{}'
      expect(pieces.length, entry.title).toBeGreaterThan(isEmpty ? 0 : 2)
    }
  })
})
