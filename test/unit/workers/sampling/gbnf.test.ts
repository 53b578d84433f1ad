import { describe, expect, it } from 'vitest'

import { Automaton } from '#workers/sampling/constraint/automaton.ts'
import { parseGbnf } from '#workers/sampling/constraint/gbnf.ts'
import { GrammarBuilder } from '#workers/sampling/constraint/grammar.ts'

function accepts(grammar: string, text: string): boolean {
  const automaton = new Automaton(parseGbnf(new GrammarBuilder(), grammar))
  let state: typeof automaton.start | null = automaton.start
  for (const byte of Buffer.from(text)) state = state && automaton.step(state, byte)
  return state?.isAccepting === true
}

// The arithmetic of llama.cpp's own examples, and the SQL of vLLM's tests.
const ARITHMETIC = `
root  ::= (expr "=" ws term "\\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \\t\\n]*
`
const SQL = `
root ::= select_statement
select_statement ::= "SELECT " column " from " table " where " condition
column ::= "col_1 " | "col_2 "
table ::= "table_1 " | "table_2 "
condition ::= column "= " number
number ::= "1 " | "2 "
`

describe('a grammar in GBNF', () => {
  it.each<[string, string, boolean]>([
    [ARITHMETIC, 'a+1=2\n', true],
    [ARITHMETIC, '(a *(b-1)) = 2\nx=1\n', true],
    [ARITHMETIC, 'a+=2\n', false],
    [SQL, 'SELECT col_1  from table_2  where col_2 = 1 ', true],
    [SQL, 'SELECT col_3 ', false],
    ['root ::= "a"{2,3} "\\u00e9\\x21" .', 'aaé!😀', true],
    ['root ::= "a"{2,3}', 'aaaa', false],
    ['root ::= [^"\\\\]+ "-"?', 'b]-', true],
    ['root ::= [^"\\\\]+', 'b"', false],
    ['root ::= [a\\]-]+', 'a]-', true],
    ['root ::=\n  "a" # comment "x"\n  | "b"\n\nother ::= "c"', 'b', true],
    ['root ::= ("a" |\n "b" other)\nother ::= ""', 'b', true],
  ])('%j reads %j: %s', (grammar, text, expected) => {
    expect(accepts(grammar, text)).toBe(expected)
  })

  it.each<[string, RegExp]>([
    ['', /no rule 'root'/],
    ['root ::= "a', /line 1: expected more/],
    ['root ::= "a"\nroot ::= "b"', /defined twice/],
    ['root ::= [b-a]', /reversed/],
    ['root ::= []', /empty/],
    ['root ::= ("a"', /expected '\)'/],
    ['root ::= "a"{3,2}', /ends before/],
    ['root ::= "a"{x}', /repetition such as/],
    ['root ::= *', /text in double quotes/],
    ['root ::= "\\UFFFFFFFF"', /is not a character/],
    [`root ::= ${'('.repeat(100)}`, /too deeply/],
  ])('refuses %j', (grammar, message) => {
    expect(() => parseGbnf(new GrammarBuilder(), grammar)).toThrow(message)
  })
})
