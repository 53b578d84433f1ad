import { describe, expect, it } from 'vitest'

import { answerParser } from '#api/inference/answers/answer-parser.ts'

import { CALLS, type Case, JSON_NOW, NOW, TOOLS } from './written-calls.ts'

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
    title: 'thoughts of Apriel that the prompt has opened',
    dialect: { calls: 'jamba', reasoning: 'apriel', beginsInReasoning: true },
    text: `a b\n[BEGIN FINAL RESPONSE]\nc\n<tool_calls>[${JSON_NOW}]</tool_calls>`,
    reasoning: 'a b',
    content: 'c',
    calls: [NOW],
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

  it.each([
    ['white space', { calls: 'hermes' }, '', '\n\n'],
    ['white space before harmony', { calls: 'harmony' }, '', '\n\n'],
    ['white space before thoughts', { calls: 'hermes', reasoning: 'think' }, '', '\n\n'],
    ['white space in thoughts', { calls: 'hermes', reasoning: 'think' }, '<think>a', '\n\n'],
    ['white space in a call', { calls: 'hermes' }, '<tool_call>', '\n\n'],
    ['a name in tags', { calls: 'glm45' }, '<tool_call>', 'abc'],
    ['openings of calls', { calls: 'deepseek_v4' }, '', '<｜DSML｜invoke name="'],
    ['a key', { calls: 'minimax_m2' }, '<invoke name="f"><parameter name="', 'abc'],
    ['a value in tags', { calls: 'qwen3_coder' }, '<tool_call><function=f><parameter=a>', 'abc'],
    ['a name of Gemma', { calls: 'gemma' }, '<start_function_call>call:', 'abc'],
    ['arguments in JSON', { calls: 'hermes' }, '<tool_call>{"name": "f", "arguments": {', '"a"'],
    ['named arguments', { calls: 'kimi_k2' }, '<|tool_call_begin|>f{"a": "', 'abc'],
  ] as const)(
    'reads a long answer once: %s',
    { timeout: 10_000 },
    (_, dialect, beginning, piece) => {
      const parser = answerParser(TOOLS, dialect)
      parser?.push(beginning)
      for (let count = 0; count < 60_000; count += 1) parser?.push(piece)
      expect(parser?.callCount).toBeLessThanOrEqual(1)
      parser?.finish()
    },
  )
})
