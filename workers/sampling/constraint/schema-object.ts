import type { Grammar } from './grammar.ts'
import { keyOtherThan, objectWith } from './object-grammar.ts'
import type { SchemaContext, SchemaPlace } from './schema-context.ts'
import type { Schema } from './schema-merge.ts'
import { countOf } from './schema-types.ts'

/** An object with its listed properties in order, followed by others if required. */
export function compileObject(
  compiler: SchemaContext,
  stated: Schema,
  place: SchemaPlace,
): Grammar {
  const { json } = compiler
  const { schema, key } = nameRules(compiler, stated, place)
  const properties = (schema.properties ?? {}) as Schema
  const required = schema.required ?? []
  const isObject = typeof properties === 'object' && !Array.isArray(properties)
  if (!isObject) compiler.refuse(place, "'properties' must be an object")
  if (!Array.isArray(required)) return compiler.refuse(place, "'required' must be a list of names")
  compiler.assertNodes(place, Object.keys(properties).length + required.length)
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
    return min > 1 ? refuseCounts() : json.mapOf(key, others(), min, max)
  }
  if (min > required.length || max < names.length) refuseCounts()
  const requiredNames = new Set<unknown>(required)
  const listed = names.map((name) => {
    const isRequired = requiredNames.has(name)
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

/**
 * Translates `propertyNames`: a list of names becomes a list of properties, any other limit the
 * format of the keys if no property is listed by name.
 */
function nameRules(
  compiler: SchemaContext,
  schema: Schema,
  place: SchemaPlace,
): { readonly schema: Schema; readonly key: Grammar } {
  const { propertyNames, ...rest } = schema
  if (propertyNames === undefined) return { schema, key: compiler.json.string }
  const at = compiler.below(place, 'propertyNames')
  const { type = 'string', nullable: _, ...limits } = compiler.resolve(propertyNames, at)
  if (type !== 'string') compiler.refuse(at, "the name of a property is of the type 'string'")
  const { properties = {}, required = [], additionalProperties = true } = rest
  const allowed = limits.const === undefined ? limits.enum : [limits.const]
  if (Array.isArray(allowed) && Object.keys(limits).length === 1) {
    const own = properties as Schema
    const names = allowed.filter((name) => typeof name === 'string')
    const listed = names
      .filter((name) => Object.hasOwn(own, name) || additionalProperties !== false)
      .map((name) => [name, Object.hasOwn(own, name) ? own[name] : additionalProperties] as const)
    const named = { properties: Object.fromEntries(listed), additionalProperties: false }
    return { schema: { ...rest, ...named }, key: compiler.json.string }
  }
  const isMap = Object.keys(Object(properties)).length + [required].flat().length === 0
  if (isMap) return { schema: rest, key: compiler.compile({ ...limits, type }, at) }
  return compiler.refuse(place, "'propertyNames' beside listed properties must list names as well")
}
