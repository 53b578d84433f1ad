import type { Grammar } from './grammar.ts'
import { compileLark } from './lark.ts'
import { LarkError } from './lark-tokens.ts'
import type { NumberBounds } from './number-range.ts'
import { integersWithin, multiplesOf, numbersWithin } from './number-range.ts'
import type { SchemaContext, SchemaPlace } from './schema-context.ts'
import type { Schema } from './schema-merge.ts'
import { FORMAT_LENGTH_MAX, findFormat, isAnnotation } from './string-formats.ts'
import { compilePattern, UnsupportedPatternError } from './string-pattern.ts'

const PATTERN_CHARS_MAX = 2000
const STEP_MAX = 100 // each remainder is a rule of the grammar

/** A string by pattern, grammar, format and length, each of which may be absent. */
export function compileString(
  compiler: SchemaContext,
  schema: Schema,
  place: SchemaPlace,
): Grammar {
  const { json } = compiler
  const { pattern, 'x-lark': lark } = schema
  const format = isAnnotation(schema.format) ? undefined : schema.format
  const min = countOf(compiler, schema, 'minLength', place) ?? 0
  const max = countOf(compiler, schema, 'maxLength', place) ?? Number.POSITIVE_INFINITY
  if (min > max) compiler.refuse(place, "'minLength' is larger than 'maxLength'")
  const isImplied = format !== undefined && min <= 1 && max >= FORMAT_LENGTH_MAX
  const hasLength = (min > 0 || max < Number.POSITIVE_INFINITY) && !isImplied
  const limits = [
    ...(pattern === undefined ? [] : [matching(compiler, pattern, place)]),
    ...(lark === undefined ? [] : [withinGrammar(compiler, lark, place)]),
    ...(format === undefined ? [] : [matching(compiler, formatOf(compiler, format, place), place)]),
    ...(hasLength ? [json.builder.repeat(json.character, min, max)] : []),
  ]
  if (limits.length === 0) return json.string
  const quote = json.builder.literal('"')
  const content =
    compiler.intersections.of(JSON.stringify([pattern, lark, format, min, max]), limits) ??
    compiler.refuse(place, "'pattern', 'format' and lengths are too large to be combined")
  return json.builder.sequence(quote, content, quote)
}

function formatOf(compiler: SchemaContext, format: unknown, place: SchemaPlace): string {
  return findFormat(format) ?? compiler.refuse(place, `the format '${format}' is not supported`)
}

function matching(compiler: SchemaContext, pattern: unknown, place: SchemaPlace): Grammar {
  if (typeof pattern !== 'string' || pattern.length > PATTERN_CHARS_MAX) {
    return compiler.refuse(place, `'pattern' must be a string of ≤ ${PATTERN_CHARS_MAX} characters`)
  }
  try {
    const compile = (): Grammar => compilePattern(compiler.json, pattern)
    return compiler.json.builder.named(`pattern ${pattern}`, compile)
  } catch (error) {
    if (!(error instanceof UnsupportedPatternError)) throw error
    return compiler.refuse(place, `in 'pattern', ${error.message}`)
  }
}

/** The strings of a grammar in Lark. */
function withinGrammar(compiler: SchemaContext, lark: unknown, place: SchemaPlace): Grammar {
  try {
    return compileLark(compiler.json, String(lark))
  } catch (error) {
    if (!(error instanceof LarkError || error instanceof UnsupportedPatternError)) throw error
    return compiler.refuse(place, error.message)
  }
}

/** A number or integer, within bounds if there are any. */
export function compileNumber(
  compiler: SchemaContext,
  schema: Schema,
  place: SchemaPlace,
  type: 'number' | 'integer',
): Grammar {
  const { json } = compiler
  const bounds = boundsOf(compiler, schema, place)
  const step = stepOf(compiler, schema, place)
  const isWhole = type === 'integer' || step !== undefined
  const within = isWhole ? integersWithin : numbersWithin
  const anyNumber = isWhole ? json.integer : json.number
  const stated = Object.entries(bounds).join(' ')
  const numbers =
    stated === ''
      ? anyNumber
      : json.builder.named(
          `${isWhole ? 'integer' : 'number'} ${stated}`,
          () => within(json, bounds) ?? compiler.refuse(place, 'no number is within the bounds'),
        )
  if (step === undefined) return numbers
  return (
    compiler.intersections.of(JSON.stringify([bounds, step]), [numbers, multiplesOf(json, step)]) ??
    compiler.refuse(place, "the schema has too many different 'multipleOf'")
  )
}

/** The whole number that all numbers must be multiples of; undefined when the schema has none. */
export function stepOf(
  compiler: SchemaContext,
  schema: Schema,
  place: SchemaPlace,
): number | undefined {
  const { multipleOf } = schema
  if (multipleOf === undefined) return undefined
  const step = Number.isInteger(multipleOf) ? Number(multipleOf) : 0
  if (step >= 1 && step <= STEP_MAX) return step
  return compiler.refuse(place, `'multipleOf' must be a whole number from 1 to ${STEP_MAX}`)
}

/** The bounds that a schema sets to numbers. */
export function boundsOf(
  compiler: SchemaContext,
  schema: Schema,
  place: SchemaPlace,
): NumberBounds {
  const bounds: Record<string, number> = {}
  for (const name of ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum']) {
    const value = schema[name]
    if (value === undefined) continue
    if (typeof value !== 'number' || Number.isNaN(value)) {
      return compiler.refuse(place, `'${name}' must be a number`)
    }
    bounds[name] = value
  }
  return bounds
}

/** A list of items, the first of which may have their own schemas. */
export function compileArray(compiler: SchemaContext, schema: Schema, place: SchemaPlace): Grammar {
  const { json } = compiler
  const { items, prefixItems } = schema
  const min = countOf(compiler, schema, 'minItems', place) ?? 0
  const max = countOf(compiler, schema, 'maxItems', place) ?? Number.POSITIVE_INFINITY
  if (min > max) compiler.refuse(place, "'minItems' is larger than 'maxItems'")
  const item =
    items === undefined
      ? json.value
      : items !== false && compiler.compile(items, compiler.below(place, 'items'))
  if (prefixItems === undefined) {
    if (item !== false) return json.arrayOf(item, min, max)
    return min > 0 ? compiler.refuse(place, "'items: false' forbids any item") : json.literal([])
  }
  if (!Array.isArray(prefixItems) || prefixItems.length === 0 || max < prefixItems.length) {
    return compiler.refuse(place, "'prefixItems' must be a list of at most 'maxItems' schemas")
  }
  compiler.assertNodes(place, prefixItems.length)
  const { builder } = json
  const first = prefixItems.flatMap((prefix, index) => [
    ...(index > 0 ? [json.comma] : []),
    compiler.compile(prefix, compiler.below(place, `prefixItems.${index}`)),
  ])
  const lacking = Math.max(min - prefixItems.length, 0)
  if (item === false && lacking > 0) compiler.refuse(place, "'items: false' forbids more items")
  const mayGoOn = item !== false && items !== undefined
  const rest =
    item !== false && (mayGoOn || lacking > 0)
      ? builder.repeat(builder.sequence(json.comma, item), lacking, max - prefixItems.length)
      : builder.literal('')
  return builder.sequenceOf([builder.literal('['), ...first, rest, builder.literal(']')])
}

/** A keyword with a count; undefined if the schema does not have it. */
export function countOf(
  compiler: SchemaContext,
  schema: Schema,
  name: string,
  place: SchemaPlace,
): number | undefined {
  const value = schema[name]
  if (value === undefined) return undefined
  if (Number.isInteger(value) && Number(value) >= 0) return Number(value)
  return compiler.refuse(place, `'${name}' must be a non-negative integer`)
}
