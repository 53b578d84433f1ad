import type { Grammar } from './grammar.ts'
import type { SchemaCompiler, SchemaPlace } from './json-schema.ts'
import { integersWithin, numbersWithin } from './number-range.ts'
import type { NumberBounds } from './number-range.ts'
import { keyOtherThan, objectWith } from './object-grammar.ts'
import type { Schema } from './schema-merge.ts'
import { findFormat, FORMAT_LENGTH_MAX, isAnnotation } from './string-formats.ts'
import { compilePattern, UnsupportedPatternError } from './string-pattern.ts'

const PATTERN_CHARS_MAX = 2000

/** A string by pattern, by format or by length. */
export function compileString(
  compiler: SchemaCompiler,
  schema: Schema,
  place: SchemaPlace,
): Grammar {
  const { json } = compiler
  const { pattern } = schema
  const format = isAnnotation(schema.format) ? undefined : schema.format
  const min = countOf(compiler, schema, 'minLength', place) ?? 0
  const max = countOf(compiler, schema, 'maxLength', place) ?? Number.POSITIVE_INFINITY
  if (min > max) compiler.refuse(place, "'minLength' is larger than 'maxLength'")
  const isImplied = format !== undefined && min <= 1 && max >= FORMAT_LENGTH_MAX
  const hasLength = (min > 0 || max < Number.POSITIVE_INFINITY) && !isImplied
  if ([pattern !== undefined, format !== undefined, hasLength].filter(Boolean).length > 1) {
    compiler.refuse(place, "'pattern', 'format' and lengths cannot be combined")
  }
  const quote = json.builder.literal('"')
  if (pattern === undefined && format === undefined) {
    return hasLength
      ? json.builder.sequence(quote, json.builder.repeat(json.character, min, max), quote)
      : json.string
  }
  const known = format === undefined ? pattern : findFormat(format)
  if (known === undefined) compiler.refuse(place, `the format '${format}' is not supported`)
  if (typeof known !== 'string' || known.length > PATTERN_CHARS_MAX) {
    return compiler.refuse(place, `'pattern' must be a string of ≤ ${PATTERN_CHARS_MAX} characters`)
  }
  try {
    return json.builder.sequence(quote, compilePattern(json, known), quote)
  } catch (error) {
    if (!(error instanceof UnsupportedPatternError)) throw error
    return compiler.refuse(place, `in 'pattern', ${error.message}`)
  }
}

/** A number or integer, within bounds where there are any. */
export function compileNumber(
  compiler: SchemaCompiler,
  schema: Schema,
  place: SchemaPlace,
  type: 'number' | 'integer',
): Grammar {
  const { json } = compiler
  const bounds = boundsOf(compiler, schema, place)
  if (Object.keys(bounds).length === 0) return type === 'integer' ? json.integer : json.number
  const within = type === 'integer' ? integersWithin : numbersWithin
  return within(json, bounds) ?? compiler.refuse(place, 'no number is within the bounds')
}

/** The bounds that a schema sets to numbers. */
export function boundsOf(
  compiler: SchemaCompiler,
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

/** A list of items, the first of which may have schemas of their own. */
export function compileArray(
  compiler: SchemaCompiler,
  schema: Schema,
  place: SchemaPlace,
): Grammar {
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
  return builder.sequence(builder.literal('['), ...first, rest, builder.literal(']'))
}

/** An object with its listed properties in their order, then others where they are asked for. */
export function compileObject(
  compiler: SchemaCompiler,
  schema: Schema,
  place: SchemaPlace,
): Grammar {
  const { json } = compiler
  const properties = (schema.properties ?? {}) as Schema
  const required = schema.required ?? []
  const isObject = typeof properties === 'object' && !Array.isArray(properties)
  if (!isObject) compiler.refuse(place, "'properties' must be an object")
  if (!Array.isArray(required)) return compiler.refuse(place, "'required' must be a list of names")
  const names = [...new Set([...Object.keys(properties), ...required.map(String)])]
  const { additionalProperties: additional } = schema
  const min = countOf(compiler, schema, 'minProperties', place) ?? 0
  const max = countOf(compiler, schema, 'maxProperties', place) ?? Number.POSITIVE_INFINITY
  const others = () =>
    typeof additional === 'object'
      ? compiler.compile(additional, compiler.below(place, 'additionalProperties'))
      : json.value

  if (names.length === 0) {
    const isEmpty = additional === undefined && schema.properties !== undefined
    if (additional === false || isEmpty) return min > 0 ? refuseCounts() : json.literal({})
    return min > 1 ? refuseCounts() : json.mapOf(json.string, others(), min, max)
  }
  if (min > required.length || max < names.length) refuseCounts()
  const listed = names.map((name) => {
    const isRequired = required.includes(name)
    const isClosed = additional === false && !Object.hasOwn(properties, name)
    if (isClosed) compiler.refuse(place, `the required property '${name}' is not allowed`)
    const unlisted = typeof additional === 'object' ? additional : true
    const property = Object.hasOwn(properties, name) ? properties[name] : unlisted
    const value = compiler.compile(property, compiler.below(place, `properties.${name}`))
    return { pair: json.builder.sequence(json.literal(name), json.colon, value), isRequired }
  })
  const mayHaveOthers =
    (additional === true || typeof additional === 'object') && max === Number.POSITIVE_INFINITY
  const other = mayHaveOthers
    ? json.builder.sequence(keyOtherThan(json, names), json.colon, others())
    : undefined
  return objectWith(json, listed, other)

  function refuseCounts(): never {
    return compiler.refuse(place, "'minProperties' and 'maxProperties' cannot be enforced here")
  }
}

/** A keyword that counts something; undefined where the schema does not have it. */
export function countOf(
  compiler: SchemaCompiler,
  schema: Schema,
  name: string,
  place: SchemaPlace,
): number | undefined {
  const value = schema[name]
  if (value === undefined) return undefined
  if (Number.isInteger(value) && Number(value) >= 0) return Number(value)
  return compiler.refuse(place, `'${name}' must be a non-negative integer`)
}
