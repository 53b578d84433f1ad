import { describe, expect, it } from 'vitest'

import { fixtureTokenizer } from '#test/unit/workers/text/model-folders.ts'
import { ConstraintCache } from '#workers/sampling/constraint/constraint-cache.ts'
import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'

import { writeAtRandom } from './random-json.ts'

const END = 2
const { pieces } = fixtureTokenizer('llama')
const MIB = 1024 ** 2

describe('the grammars of a model', () => {
  it('are found again by their key', () => {
    const cache = new ConstraintCache(pieces, new Set([END]))
    const first = cache.get('a', () => grammarOf({ type: 'string' }))
    expect(cache.get('a', () => grammarOf({ type: 'null' }))).toBe(first)
  })

  it('are dropped, the least recently used first, beyond a number', () => {
    const cache = new ConstraintCache(pieces, new Set([END]))
    const compiled: string[] = []
    const get = (key: string) =>
      cache.get(key, () => {
        compiled.push(key)
        return grammarOf({ const: key })
      })
    for (const key of 'abcdefgh') get(key)
    get('a')
    get('i')
    get('a')
    get('b')
    expect(compiled.join('')).toBe('abcdefghib')
  })

  it('need no more memory than allowed, with any answers', () => {
    const cache = new ConstraintCache(pieces, new Set([END]), { bytesMax: 2 * MIB })
    let largest = 0
    for (let index = 0; index < 6; index += 1) {
      const factory = cache.get(`${index}`, () => grammarOf(manyStrings(index)))
      for (let seed = 0; seed < 3; seed += 1) writeAtRandom(factory, seed)
      largest = Math.max(largest, factory.bytes)
      // The one in use grows while it is followed; the next request makes room.
      cache.get('small', () => grammarOf({ type: 'null' }))
      expect(cache.bytes).toBeLessThan(2 * MIB)
    }
    expect(largest).toBeGreaterThan(MIB / 2)
    expect(cache.size).toBeLessThan(6)
  })

  it('count a schema as long as it is written', () => {
    const cache = new ConstraintCache(pieces, new Set([END]), { bytesMax: 2 * MIB })
    for (let index = 0; index < 4; index += 1) {
      const key = `${index}${'x'.repeat(MIB / 2)}`
      cache.get(key, () => grammarOf({ const: index }))
    }
    expect(cache.size).toBe(1)
  })

  it('still serve one that exceeds the limit of all', () => {
    const cache = new ConstraintCache(pieces, new Set([END]), { bytesMax: 1 })
    const factory = cache.get('a', () => grammarOf({ type: 'boolean' }))
    expect(['true', 'false']).toContain(writeAtRandom(factory, 1))
    expect(cache.size).toBe(1)
  })
})

function grammarOf(schema: object) {
  return new SchemaCompiler('response_format').compileRoot(schema, 'schema')
}

/** Every place in every string is a state of its own. */
function manyStrings(index: number): object {
  const items = { type: 'string', maxLength: 300 + index }
  return { type: 'array', items, minItems: 2, maxItems: 40 }
}
