import { describe, expect, it } from 'vitest'

import { createChatTemplate } from '#workers/text/chat-template.ts'

const CLOCK = { now: () => 0, monotonic: () => 0 }

function render(template: string, args = '{}'): string {
  const calls = [{ id: 'call_1', name: 'f', arguments: args }]
  const messages = [
    { role: 'user' as const, content: ' hi ' },
    { role: 'assistant' as const, content: '', toolCalls: calls },
  ]
  const tools = [{ name: 'f' }]
  const source = { template: `{# tools #}${template}`, specialTokens: {} }
  return createChatTemplate(source, CLOCK).render(messages, tools, { opensAnswer: false }).text
}

// The output of transformers 5.23.0 (`render_jinja_template`) for the same input.
describe('a template is rendered as Python does', () => {
  it.each([
    ['{{ "\\n a \\n".strip("\\n") }}|', ' a |'],
    ['{{ "\\n\\n a".lstrip("\\n") }}|{{ "xxaxx".rstrip("x") }}|', ' a|xxa|'],
    ['{{ "  a ".strip() }}|{{ "abcab".strip("ab") }}', 'a|c'],
    ['{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}', '1234'],
    ['{{ (none | selectattr("a") | list) | length }}', '0'],
    ['{{ true }} {{ 1 == 2 }} {{ messages[0].role is string }}', 'True False True'],
    ['{{ messages[0] }}', "{'role': 'user', 'content': ' hi '}"],
    [
      `{{ ["it's", 'say "so"', 1, none, 1.5, false] }}`,
      `["it's", 'say "so"', 1, None, 1.5, False]`,
    ],
    [`{{ ["both ' and " ~ '"', "new\\nline"] }}`, `['both \\' and "', 'new\\nline']`],
    ['{% set x %}{{ true }}{% endset %}{{ x }}', 'True'],
    ['{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(false) }}{{ m("b") }}', '<False><b>'],
    [
      '{% set d = {"items": 1, "keys": 2, "get": 3} %}{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %} {{ d["items"] }}{{ d.get("get") }} {{ d.keys() | list | length }}',
      'items1keys2get3 13 3',
    ],
    ['{% if true %}{{ messages | length > 1 }}{% else %}no{% endif %}', 'True'],
  ])('%s', (template, expected) => {
    expect(render(template)).toBe(expected)
  })

  it.each([
    ['{"t": 1.0, "n": 2, "l": [3.50, 1e2]}', '{"t": 1.0, "n": 2, "l": [3.5, 100.0]}'],
    ['{"big": 1e20, "small": -0.5}', '{"big": 1e+20, "small": -0.5}'],
  ])('with the arguments %s', (args, expected) => {
    const template = '{{ messages[1].tool_calls[0].function.arguments | tojson }}'
    expect(render(template, args)).toBe(expected)
  })
})
