import { describe, expect, it } from 'vitest'

import { type AnswerPart, ToolCallParser } from '#api/inference/chat/chat-tool-calls.ts'

const CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, "}"]}}\n</tool_call>'

const CASES: readonly {
  readonly title: string
  readonly text: string
  readonly isForced?: boolean
  readonly callsMax?: number
  readonly content: string
  readonly calls: readonly { name: string; arguments: string }[]
}[] = [
  { title: 'plain text', text: 'Hello there.\n', content: 'Hello there.\n', calls: [] },
  {
    title: 'one call',
    text: CALL,
    content: '',
    calls: [{ name: 'add', arguments: '{"a": 1, "b": [2, "}"]}' }],
  },
  {
    title: 'text before two calls, without the white space between',
    text: `Let me see.\n${CALL}\n${CALL}\n`,
    content: 'Let me see.',
    calls: [
      { name: 'add', arguments: '{"a": 1, "b": [2, "}"]}' },
      { name: 'add', arguments: '{"a": 1, "b": [2, "}"]}' },
    ],
  },
  {
    title: 'at most the calls that are wanted',
    text: `${CALL}${CALL}`,
    callsMax: 1,
    content: '',
    calls: [{ name: 'add', arguments: '{"a": 1, "b": [2, "}"]}' }],
  },
  {
    title: 'arguments before the name, and arguments as a text',
    text: '<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call><tool_call>{"name":"g","arguments":"{\\"y\\":2}"}</tool_call>',
    content: '',
    calls: [
      { name: 'f', arguments: '{"x":1}' },
      { name: 'g', arguments: '{"y":2}' },
    ],
  },
  {
    title: 'a call without arguments',
    text: '<tool_call>{"name": "now"}</tool_call>',
    content: '',
    calls: [{ name: 'now', arguments: '{}' }],
  },
  {
    title: 'what is not a call as content, letter by letter',
    text: '<tool_call>not json</tool_call> and 1 < 2 <tool',
    content: '<tool_call>not json and 1 < 2 <tool',
    calls: [],
  },
  {
    title: 'a call whose closing tag was a stop string',
    text: '<tool_call>\n{"name": "add", "arguments": {}}\n',
    content: '',
    calls: [{ name: 'add', arguments: '{}' }],
  },
  {
    title: 'nothing of a call that was cut off before it had a name',
    text: 'Well.\n<tool_call>\n{"name": "ad',
    content: 'Well.\n',
    calls: [],
  },
  { title: 'nothing of a mere opening tag', text: '<tool_call>', content: '', calls: [] },
  {
    title: 'an opening tag that nothing like a call follows',
    text: '<tool_call> is a tag',
    content: '<tool_call> is a tag',
    calls: [],
  },
  {
    title: 'a call that was cut off by length',
    text: '<tool_call>\n{"name": "add", "arguments": {"a": "12',
    content: '',
    calls: [{ name: 'add', arguments: '{"a": "12' }],
  },
  {
    title: 'a bare object where a call was demanded',
    text: ' {"name": "add", "arguments": {"a": 1}}',
    isForced: true,
    content: '',
    calls: [{ name: 'add', arguments: '{"a": 1}' }],
  },
  {
    title: 'a bare object where no call was demanded as content',
    text: '{"name": "add", "arguments": {"a": 1}}',
    content: '{"name": "add", "arguments": {"a": 1}}',
    calls: [],
  },
]

describe('the parser of tool calls', () => {
  it.each(CASES)('reads $title, however the text is cut', (entry) => {
    for (const pieces of cuts(entry.text)) {
      const parser = new ToolCallParser({
        callsMax: entry.callsMax ?? 128,
        isForced: entry.isForced ?? false,
      })
      const parts = [...pieces.flatMap((piece) => parser.push(piece)), ...parser.finish()]
      expect(gather(parts), pieces.join('|')).toEqual({
        content: entry.content,
        calls: entry.calls,
      })
    }
  })

  it('yields arguments before they are complete', () => {
    const parser = new ToolCallParser({ callsMax: 128, isForced: false })
    parser.push('<tool_call>{"name": "add", "arguments": {"a": ')
    expect(parser.push('12')).toEqual([{ type: 'callArguments', index: 0, text: '12' }])
  })

  it('never yields a beginning of a tag as content', () => {
    const parser = new ToolCallParser({ callsMax: 128, isForced: false })
    expect(parser.push('Hi<tool_')).toEqual([{ type: 'content', text: 'Hi' }])
  })
})

/** The text whole, by the letter, and in threes. */
function cuts(text: string): string[][] {
  return [[text], [...text], text.match(/[\s\S]{1,3}/g) ?? []]
}

function gather(parts: readonly AnswerPart[]): { content: string; calls: unknown[] } {
  let content = ''
  const calls: { name: string; arguments: string }[] = []
  for (const part of parts) {
    if (part.type === 'content') content += part.text
    if (part.type === 'callStart') calls[part.index] = { name: part.name, arguments: '' }
    if (part.type === 'callArguments')
      (calls[part.index] as { arguments: string }).arguments += part.text
  }
  return { content, calls }
}
