import { describe, expect, it } from 'vitest'

import type { AutomatonState } from '#workers/sampling/constraint/automaton.ts'
import { Automaton } from '#workers/sampling/constraint/automaton.ts'
import type { Grammar } from '#workers/sampling/constraint/grammar.ts'
import { GrammarBuilder } from '#workers/sampling/constraint/grammar.ts'
import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'
import { compileWholePattern, plainAlphabet } from '#workers/sampling/constraint/string-pattern.ts'
import { ConstraintFactory } from '#workers/sampling/constraint/token-constraint.ts'
import { buildTokenTrie } from '#workers/sampling/constraint/token-trie.ts'

/** Whether a text is one of a grammar's. */
function accepts(automaton: Automaton, text: string): boolean {
  let state: AutomatonState | null = automaton.start
  for (const byte of Buffer.from(text)) state = state && automaton.step(state, byte)
  return state?.isAccepting === true
}

function manyProperties(count: number, schemaOf: (index: number) => object): object {
  const properties = Object.fromEntries(
    Array.from({ length: count }, (_, index) => [`property_${index}`, schemaOf(index)]),
  )
  return { type: 'object', properties, required: Object.keys(properties) }
}

function compile(schema: object): { readonly grammar: Grammar; readonly size: number } {
  const compiler = new SchemaCompiler('response_format')
  return { grammar: compiler.compileRoot(schema, 'schema'), size: compiler.json.builder.size }
}

describe('the parts of a grammar', () => {
  it('are shared if they are equal, and are counted each time', () => {
    const builder = new GrammarBuilder()
    expect(builder.literal('a')).toBe(builder.literal('a'))
    expect(builder.byte([48, 57], [65, 70])).toBe(builder.byte([48, 57], [65, 70]))
    expect(builder.literal('a')).not.toBe(builder.literal('b'))
    expect(builder.size).toBe(6)
  })

  it('with the same limits are computed once, however many there are', () => {
    const limited = { type: 'number', minimum: 17, maximum: 93_481 }
    const dated = { type: 'string', format: 'date-time' }
    const few = compile(manyProperties(10, (index) => (index % 2 === 0 ? limited : dated)))
    const many = compile(manyProperties(2000, (index) => (index % 2 === 0 ? limited : dated)))
    // Six nodes or so for each further property.
    expect(many.size - few.size).toBeLessThan(1990 * 8)
    const automaton = new Automaton(many.grammar)
    const values = (number: string) =>
      Array.from({ length: 2000 }, (_, index) => {
        const value = index % 2 === 0 ? number : '"2026-11-22T09:05:07Z"'
        return `"property_${index}": ${value}`
      }).join(', ')
    expect(accepts(automaton, `{${values('17.5')}}`)).toBe(true)
    expect(accepts(automaton, `{${values('16')}}`)).toBe(false)
  })
})

describe('a part that is made later', () => {
  it('is built once, when a text first reaches it', () => {
    const builder = new GrammarBuilder()
    let made = 0
    const later = builder.later(() => {
      made += 1
      return builder.literal('b')
    })
    const one = builder.sequence(builder.literal('a'), later, builder.literal('c'))
    const automaton = new Automaton(builder.choice(one, builder.literal('x')))
    expect(accepts(automaton, 'x')).toBe(true)
    expect(made).toBe(0)
    expect(accepts(automaton, 'abc')).toBe(true)
    expect(accepts(automaton, 'acc')).toBe(false)
    expect(made).toBe(1)
  })

  it('leads into none of its own dead ends, and uses memory', () => {
    const builder = new GrammarBuilder()
    const endless: Grammar = builder.sequence(
      builder.literal('e'),
      builder.reference(() => endless),
    )
    const later = builder.later(() => builder.choice(endless, builder.literal('b')))
    const automaton = new Automaton(builder.sequence(builder.literal('a'), later))
    const before = automaton.bytes
    const state = automaton.step(automaton.start, 0x61) as AutomatonState
    expect(automaton.step(state, 0x65)).toBe(null)
    expect(accepts(automaton, 'ab')).toBe(true)
    expect(automaton.bytes).toBeGreaterThan(before)
  })
})

/** Bytes, and runs of one letter as vocabularies have them. */
const TOKENS = [
  ...Array.from({ length: 256 }, (_, byte) => Buffer.of(byte)),
  ...Array.from({ length: 58 }, (_, index) => Buffer.from('a'.repeat(index + 2))),
]
const pieces = {
  bytesOf: (tokenId: number) => TOKENS[tokenId] as Buffer,
  firstBytesOf: (tokenId: number) => TOKENS[tokenId] as Buffer,
  isSpecial: () => false,
  size: TOKENS.length,
}

/** Writes `ab` over and over within a pattern; returns the number of letters. */
function write(pattern: string, letters: number): number {
  const factory = new ConstraintFactory({
    grammar: compileWholePattern(plainAlphabet(new GrammarBuilder()), pattern),
    trie: buildTokenTrie(pieces),
    pieces,
    endTokenIds: new Set<number>(),
  })
  const follower = factory.create()
  for (let index = 0; index < letters; index += 1) {
    follower.mask(new Float32Array(TOKENS.length))
    follower.accept((index % 2 === 0 ? 'a' : 'b').charCodeAt(0))
  }
  return letters
}

describe('an answer within a pattern', () => {
  it.each(['[a-z]{0,5000}', '([ab]*a[ab]{300})*', '(\\w+\\s?){1,50}', '([a-z]+,? ?)*'])(
    'goes on as long as each token costs little (%s)',
    (pattern) => {
      expect(write(pattern, 600)).toBe(600)
    },
  )

  it.each(['([a-z]|a[a-z]|aa[a-z]){0,2000}'])(
    'ends before others wait for it where each token costs much (%s)',
    (pattern) => {
      expect(() => write(pattern, 600)).toThrow('the grammar is too ambiguous')
    },
  )

  it.each(['([a-z]{1,60}){1,60}', '([a-z]{0,30}){0,30}'])(
    'is refused where one mask costs more than a turn of the event loop (%s)',
    (pattern) => {
      expect(() => write(pattern, 1)).toThrow('the grammar is too ambiguous')
    },
  )
})
