import type { Schema } from './schema-merge.ts'

type Rule = (value: unknown, schema: Schema) => boolean

const takesAll: Rule = (value, schema) => value === true || isEmpty(value, schema)
const isEmpty: Rule = (value) =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  Object.keys(value).length === 0
const lacks =
  (...names: readonly string[]): Rule =>
  (_, schema) =>
    names.every((name) => schema[name] === undefined)

// Where a keyword that cannot be enforced has no effect: exporters write many of them by default.
const IDLE: Readonly<Record<string, Rule>> = {
  not: (value) => value === false,
  dependentSchemas: isEmpty,
  dependentRequired: isEmpty,
  dependencies: isEmpty,
  patternProperties: isEmpty,
  // Member names are always strings.
  propertyNames: (value, schema) => takesAll(value, schema) || isAnyString(value),
  unevaluatedProperties: takesAll,
  unevaluatedItems: takesAll,
  contains: (_, { minContains, maxContains }) => minContains === 0 && maxContains === undefined,
  minContains: (value, { contains }) => contains === undefined || value === 0,
  maxContains: lacks('contains'),
  uniqueItems: (value, { maxItems }) => value === false || maxItems === 0 || maxItems === 1,
  // It applies to items after a list of schemas under `items`, which is refused itself.
  additionalItems: (_, { items }) => !Array.isArray(items),
  multipleOf: (value, { type }) => isPartOfOne(value) && isInteger(type),
  divisibleBy: (value, { type }) => isPartOfOne(value) && isInteger(type),
  // Names for references of a kind that is refused where it is used.
  $anchor: () => true,
  $dynamicAnchor: () => true,
  $recursiveAnchor: () => true,
}

/**
 * The schema in enforceable keywords: without those that have no effect there, and with multiples
 * of one as integers.
 */
export function withoutIdleKeywords(schema: Schema): Schema {
  const plain = schema.multipleOf === 1 ? { ...schema, type: asInteger(schema.type) } : schema
  const isIdle = ([name, value]: [string, unknown]): boolean =>
    Object.hasOwn(IDLE, name) && IDLE[name]?.(value, plain) === true
  const entries = Object.entries(plain)
  // Most schemas have none, and a large one has thousands of entries.
  return entries.some(isIdle)
    ? Object.fromEntries(entries.filter((entry) => !isIdle(entry)))
    : plain
}

/** Whether a schema only requires a string. */
function isAnyString(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null) return false
  const names = Object.keys(schema)
  return names.length === 1 && (schema as Schema).type === 'string'
}

function asInteger(type: unknown): unknown {
  if (!Array.isArray(type)) return type === 'number' ? 'integer' : type
  return [...new Set(type.map((name: unknown) => (name === 'number' ? 'integer' : name)))]
}

/** Whether every integer is a multiple of the value: 1, 0.5, 0.25. */
function isPartOfOne(value: unknown): boolean {
  return typeof value === 'number' && value > 0 && Number.isInteger(1 / value)
}

function isInteger(type: unknown): boolean {
  return type !== undefined && [type].flat().every((name) => name !== 'number')
}
