import { expect, it } from 'vitest'

import { matchesGlob } from '#api/auth/redirects/glob.ts'

const CASES: readonly (readonly [glob: string, text: string, isMatch: boolean])[] = [
  ['a*c', 'abbc', true],
  ['a*c', 'ab.c', false],
  ['a*c', 'ab/c', false],
  ['a**c', 'ab./c', true],
  ['a**', 'a', true],
  ['***x', './x', true],
  ['a?c', 'abc', true],
  ['a?c', 'a.c', false],
  ['a?c', 'ac', false],
  ['[abc]', 'b', true],
  ['[a-c]', 'b', true],
  ['[a-c]', 'd', false],
  ['[!a-c]', 'd', true],
  ['[!a-c]', 'a', false],
  ['[!a]', '/', false],
  ['[z-a]', 'm', false],
  ['{a,b{c,d}}e', 'bde', true],
  ['{a,b{c,d}}e', 'be', false],
  ['{,a}b', 'b', true],
  ['\\*', '*', true],
  ['\\*', 'x', false],
  ['\\{a\\}', '{a}', true],
  ['[', '[', false],
  ['{a', '{a', false],
  ['a}', 'a}', false],
  ['', '', true],
  ['', 'a', false],
  ['http://localhost:8000/*', 'http://localhost:8000', false],
]

for (const [glob, text, isMatch] of CASES) {
  it(`${glob} ${isMatch ? 'matches' : 'does not match'} ${text}`, () => {
    expect(matchesGlob(glob, text)).toBe(isMatch)
  })
}

it('does not backtrack over many wildcards', () => {
  // A backtracking matcher needs about 10^15 steps for this text.
  const text = `https://${'a.'.repeat(900)}`
  expect(matchesGlob('https://**.**.**.**.**.**.example.org/**', text)).toBe(false)
})

it('does not let braces multiply without end', () => {
  expect(matchesGlob('{a,b}'.repeat(30), 'a'.repeat(30))).toBe(false)
})
