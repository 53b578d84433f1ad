import { Automaton } from './automaton.ts'
import type { AutomatonState } from './automaton.ts'
import type { SchemaCompiler, SchemaPlace } from './json-schema.ts'
import { isWithin } from './number-range.ts'
import { IMPLIED } from './schema-merge.ts'
import type { Schema } from './schema-merge.ts'
import { boundsOf, compileString, countOf, stepOf } from './schema-types.ts'

/**
 * Tells which values of `enum` or `const` the limits beside them leave. Refuses limits of listed lists
 * and objects, and listed texts that may or may not have the format beside them.
 */
export function limitsOfListed(
  compiler: SchemaCompiler,
  schema: Schema,
  place: SchemaPlace,
): (value: unknown) => boolean {
  const bounds = boundsOf(compiler, schema, place)
  const step = stepOf(compiler, schema, place)
  const minLength = countOf(compiler, schema, 'minLength', place) ?? 0
  const maxLength = countOf(compiler, schema, 'maxLength', place) ?? Number.POSITIVE_INFINITY
  const isAnyLength = minLength === 0 && maxLength === Number.POSITIVE_INFINITY
  const hasLength = (value: string): boolean => {
    if (isAnyLength) return true
    const { length } = [...value]
    return length >= minLength && length <= maxLength
  }
  const matcher = (limit: Schema): ((value: string) => boolean) =>
    matcherOf(new Automaton(compileString(compiler, limit, place)))
  const matches = 'pattern' in schema ? matcher({ pattern: schema.pattern }) : () => true
  const hasFormat = 'format' in schema ? matcher({ format: schema.format }) : () => true
  return (value) => {
    if (typeof value === 'number')
      return isWithin(value, bounds) && (step === undefined || value % step === 0)
    if (typeof value === 'string') {
      if (!hasFormat(value)) compiler.refuse(place, "a listed value may not have the 'format'")
      return hasLength(value) && matches(value)
    }
    refuseNested(compiler, schema, place, value)
    return true
  }
}

/** Reads with the grammar itself: a regular expression of a client's could take forever. */
function matcherOf(automaton: Automaton): (value: string) => boolean {
  return (value) => {
    let state: AutomatonState | null = automaton.start
    for (const byte of Buffer.from(JSON.stringify(value))) {
      state = state && automaton.step(state, byte)
    }
    return state?.isAccepting === true
  }
}

function refuseNested(
  compiler: SchemaCompiler,
  schema: Schema,
  place: SchemaPlace,
  value: unknown,
): void {
  if (typeof value !== 'object' || value === null) return
  const type = Array.isArray(value) ? 'array' : 'object'
  const limit = Object.keys(schema).find((name) => IMPLIED[name] === type)
  if (limit !== undefined) {
    compiler.refuse(place, `'${limit}' beside a listed ${type} is not supported`)
  }
}
