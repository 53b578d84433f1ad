import type { WorkBudget } from '#workers/preparation/work-budget.ts'

import { Automaton, type AutomatonState } from './automaton.ts'
import type { Grammar } from './grammar.ts'
import { isWithin } from './number-range.ts'
import type { SchemaContext, SchemaPlace } from './schema-context.ts'
import { IMPLIED, type JsonType, type Schema, typesOf } from './schema-merge.ts'
import { boundsOf, compileString, countOf, stepOf } from './schema-types.ts'

/** One of the values of `enum` or `const` that satisfies the rest of the schema. */
export function compileListed(
  compiler: SchemaContext,
  schema: Schema,
  place: SchemaPlace,
): Grammar {
  const { budget, json } = compiler
  const { const: constant } = schema
  const listed = schema.enum === undefined ? [constant] : compiler.list('enum', schema.enum, place)
  compiler.assertNodes(place, listed.length)
  const isWithinLimits = limitsOfListed(compiler, schema, place)
  const types = schema.type === undefined ? undefined : typesOf(schema)
  const wanted = constant === undefined ? undefined : canonicalText(constant, budget)
  const values = listed.filter(
    (value) =>
      isWithinLimits(value) &&
      (types === undefined || types.some((type) => isOfType(value, type))) &&
      (wanted === undefined || canonicalText(value, budget) === wanted),
  )
  if (values.length === 0) {
    compiler.refuse(place, 'no listed value has the stated type and limits')
  }
  return json.builder.choiceOf(values.map((value) => json.literal(value)))
}

function isOfType(value: unknown, type: JsonType): boolean {
  switch (type) {
    case 'null':
      return value === null
    case 'array':
      return Array.isArray(value)
    case 'object':
      return typeof value === 'object' && value !== null && !Array.isArray(value)
    case 'integer':
      return Number.isInteger(value)
    case 'number':
    case 'string':
    case 'boolean':
      return typeof value === type
  }
}

/**
 * Filters the values of `enum` or `const` by the other limits. Refuses limits of listed lists and
 * objects, and listed texts whose format cannot be decided.
 */
function limitsOfListed(
  compiler: SchemaContext,
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
    compiler.budget.charge(value.length)
    const { length } = [...value]
    return length >= minLength && length <= maxLength
  }
  const matcher = (limit: Schema): ((value: string) => boolean) =>
    matcherOf(
      new Automaton(compileString(compiler, limit, place), { budget: compiler.budget }),
      compiler.budget,
    )
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

/** Uses the grammar itself, because a client's regular expression could take forever. */
function matcherOf(automaton: Automaton, budget: WorkBudget): (value: string) => boolean {
  return (value) => {
    budget.charge(value.length)
    let state: AutomatonState | null = automaton.start
    for (const byte of Buffer.from(JSON.stringify(value))) {
      state = state && automaton.step(state, byte)
    }
    return state?.isAccepting === true
  }
}

function refuseNested(
  compiler: SchemaContext,
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

/** The JSON text of a value with sorted member names, so that equal values have equal texts. */
export function canonicalText(value: unknown, budget: WorkBudget): string {
  const text = JSON.stringify(value, (_name, held: unknown) => {
    budget.charge()
    if (typeof held !== 'object' || held === null || Array.isArray(held)) return held
    const entries = Object.entries(held)
    return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
  })
  budget.chargeText(text?.length ?? 0)
  return text ?? ''
}
