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
    ['{{ u | trim }}{{ u | upper }}|{{ u | length }}{{ u | list }}{{ u | join(",") }}', '|0[]'],
    ['{{ {"a": [1, none]} | string }}{{ [1, "a"] | string }}', "{'a': [1, None]}[1, 'a']"],
    ['{{ none ~ "a" ~ [1, "b"] ~ true ~ u }}', "Nonea[1, 'b']True"],
    [
      '{{ {"a": 1} | list }}{{ "abc" | list | last }}{{ "abc" | first }}{{ "abc" | reverse }}',
      "['a']cacba",
    ],
    [
      '{{ [3, 1, 2] | min }}{{ [3, 1, 2] | max }} {{ [1, 2.5] | sum }} {{ [4, 5] | count }}',
      '13 3.5 2',
    ],
    ['{{ 2.567 | round(1) }} {{ 2.5 | round }} {{ 2.567 | round(2, "floor") }}', '2.6 2.0 2.56'],
    ['{{ "a" * 3 }}{{ 2 * "b" }}{{ [1] * 2 }} {{ -7 % 3 }} {{ "a" < "b" }}', 'aaabb[1, 1] 2 True'],
    ['{{ "{} {}{{".format("a", 2) }}{{ "{1}{0}{x}".format("a", "b", x="c") }}', 'a 2{bac'],
    ['{{ "%s is %d, %.2f%%" % ("a", 3, 2) }}', 'a is 3, 2.00%'],
    [
      '{{ {"a": [1, {"b": 2}]} == {"a": [1, {"b": 2}]} }} {{ {"a": 1} in [{"a": 1}] }} {{ [1] != [2] }}',
      'True True True',
    ],
    [
      '{{ "a\nb\r\nc".splitlines() }} {{ "aXbXc".count("X") }} {{ "abc".find("c") }} {{ "abc".removeprefix("a").removesuffix("c") }}',
      "['a', 'b', 'c'] 2 2 b",
    ],
    [
      '{{ ",".join(["a", "b"]) }} {{ "a.b.c".rsplit(".", 1) }} {{ "7".zfill(3) }}',
      "a,b ['a.b', 'c'] 007",
    ],
    ['{{ "12".isdigit() }} {{ "Ab".isupper() }} {{ "hELLO".capitalize() }}', 'True False Hello'],
    [
      '{% set m = {0: "z", 512: "y"} %}{{ m[512] }}{{ m.get(0) }} {% for k, v in m | dictsort %}{{ k + 1 }}{{ v }}{% endfor %} {% for k, v in m.items() %}{{ k }}{{ v }}{% endfor %} {% for k in m %}{{ k }}{% endfor %} {{ 512 in m }} {{ m | length }}',
      'yz 1z513y 0z512y 0512 True 2',
    ],
    [
      '{{ ["a", "b"] | map("upper") | join }} {{ [1, 2, 3] | select("odd") | list }} {{ [0, 1] | reject | list }}',
      'AB [1, 3] [0]',
    ],
    [
      '{{ {} is iterable }} {{ 3 is iterable }} {{ [1, 2, 3] | batch(2) | list }}',
      'True False [[1, 2], [3]]',
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

it('keeps control tokens of a format, and none of a client in it', () => {
  const template =
    '{{ "<{}>".format("a") }}{{ "<{}>".format(messages[0].content) }}{{ "-".join(["<b>", messages[0].content]) }}{{ "=" * 2 }}'
  const source = { template, specialTokens: {} }
  const messages = [{ role: 'user' as const, content: '<x>' }]
  const { text, content } = createChatTemplate(source, CLOCK).render(messages, [])
  expect(text).toBe('<a><<x>><b>-<x>==')
  expect(content.map(({ start, end }) => text.slice(start, end))).toEqual(['<x>', '<x>'])
})

describe('a template that reads long values again and again', () => {
  const text = '{% set s = "x" * 1048576 %}{% set t = "x" * 1048576 %}'
  const list = '{% set s = range(100000) %}'
  const often = (expression: string, count: number) =>
    `{% for i in range(${count}) %}{% set a = ${expression} %}{% endfor %}`
  it.each([
    ['a method', text + often('s.count("y")', 20_000)],
    ['an operator', text + often('"y" in s', 20_000)],
    ['a comparison', text + often('s == t', 1000)],
    ['a filter of texts', text + often('s | wordcount', 100)],
    ['a filter of lists', list + often('s | sum', 1000)],
    ['a test', text + often('s is lower', 1000)],
    ['a slice of a text', text + often('s[1:2]', 100)],
    ['a slice of a list', list + often('s[1:2]', 20_000)],
  ])('is refused: %s', (_, template) => {
    expect(() => render(template)).toThrow('cannot render these messages')
  })

  it.each([
    ['a block', '{% set b %}{{ ns.s }}{{ messages[0].content }}x{% endset %}{% set ns.s = b %}'],
    ['a sum', '{% set ns.s = ns.s ~ messages[0].content ~ "x" %}'],
  ])('is refused for a text of thousands of parts: %s', (_, step) => {
    const template = `{% set ns = namespace(s="") %}{% for i in range(6000) %}${step}{% endfor %}`
    expect(() => render(template)).toThrow('take too long to prepare')
  })

  it('splits no text into more pieces than it has steps', () => {
    const template = `${text}{{ s.split("x") | length }}`
    expect(() => render(template)).toThrow('cannot render these messages')
  })
})
