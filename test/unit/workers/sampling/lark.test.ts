import { describe, expect, it } from 'vitest'

import { Automaton } from '#workers/sampling/constraint/automaton.ts'
import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'

const compile = (lark: string) =>
  new SchemaCompiler('tools').compileRoot({ type: 'string', 'x-lark': lark }, 'grammar')

function accepts(lark: string, text: string): boolean {
  const automaton = new Automaton(compile(lark))
  let state: typeof automaton.start | null = automaton.start
  for (const byte of Buffer.from(JSON.stringify(text))) state = state && automaton.step(state, byte)
  return state?.isAccepting === true
}

// The grammars of the kinds that tools for arithmetic and for patches of files have.
const ARITHMETIC = `
start: expr
?expr: term (SP ADD SP term)* -> add
  | term
!term: factor (SP MUL SP factor)* -> mul
  | factor
factor: INT | "(" expr ")"
SP.2: " "
ADD: "+"
MUL: "*"
%import common.INT // whole numbers
`
const PATCH = `
start: "*** Begin" LF file+ "*** End" LF?
# One file.
file: "*** File: " path LF line+

path: /(.+)/
line: ("+" | "-" | " ") /(.*)/ LF -> line
%import common.LF
`

describe('a string that follows a grammar in Lark', () => {
  it.each<[string, string, boolean]>([
    [ARITHMETIC, '4 + 4 * (2 + 1)', true],
    [ARITHMETIC, '4+4', false],
    [ARITHMETIC, '4 + ', false],
    [PATCH, '*** Begin\n*** File: a/b "c".ts\n+x\\n\n-\ty\n*** File: é\n \n*** End', true],
    [PATCH, '*** Begin\n*** End\n', false],
    ['start: "a"~2..3 "é\\x21\\n"', 'aaé!\n', true],
    ['start: "a"~2', 'aaa', false],
    ['start: "Select"i', 'sELECT', true],
    ['start: "a".."c" ["d"]', 'b', true],
    ['start: "a".."c" ["d"]', 'dd', false],
    ['start: /^[a-z]+\\/\\d$/', 'ab/7', true],
    ['start: | "a"', 'a', true],
    ['start: WORD+\nWORD: "a" // "b"\n  | "b"', 'aba', true],
    ['%import common (WS, CNAME)\n%import common.INT -> NUM\nstart: CNAME WS NUM', 'a_1 \n7', true],
    ['%import common.ESCAPED_STRING\nstart: ESCAPED_STRING', '"a\\"b"', true],
    ['%import common.SIGNED_NUMBER\nstart: SIGNED_NUMBER', '-1.5e+3', true],
    ['start: "(" start? ")"', '((()))', true],
  ])('%j reads %j: %s', (grammar, text, expected) => {
    expect(accepts(grammar, text)).toBe(expected)
  })

  it.each<[string, RegExp]>([
    ['', /no rule 'start'/],
    ['start: other', /no rule 'other'/],
    ['start: "a"\nstart: "b"', /defined twice/],
    ['start: ("a"', /at its end, '\)' is expected/],
    ['start: "a"\n\n+ ; "b"', /line 3, a character/],
    ['start: *', /line 1, a text, a regular expression/],
    ['"a"', /line 1, a rule such as/],
    ['start: "a"\n%ignore " "', /line 2, only '%import common\.NAME' is supported, not '%ignore'/],
    ['%import python.NAME\nstart: NAME', /not '%import'/],
    ['%import common.SQL_COMMENT\nstart: "a"', /'common\.SQL_COMMENT' is not supported/],
    ['start: /a/s', /flags 's' are not supported/],
    ['start: /(?=a)b/', /look-around is not supported/],
    ['start: "b".."a"', /from one character to a later one/],
    ['start: "a"~3..2', /repetition ~3\.\.2/],
    ['start: "\\q"', /escape '\\q' is not supported/],
    ['start: "a" start', /no value satisfies it/],
    [`start: ${'('.repeat(65)}"a"${')'.repeat(65)}`, /nested too deeply/],
  ])('%j is refused with %s', (grammar, message) => {
    expect(() => compile(grammar)).toThrow(message)
  })
})
