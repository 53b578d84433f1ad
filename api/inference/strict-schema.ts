import { failure } from '#shared/errors.ts'

const DEPTH_MAX = 32

/**
 * Checks the rules of `strict` for a JSON Schema: every object forbids additional properties and
 * requires all of its own. Throws `invalidRequest` naming the place.
 */
export function checkStrictSchema(schema: unknown, path: string, depth = 0): void {
  if (typeof schema !== 'object' || schema === null) return
  if (depth > DEPTH_MAX) throw invalid(path, `it is nested deeper than ${DEPTH_MAX} levels`)
  const record = schema as Record<string, unknown>
  if (isObjectSchema(record)) checkObject(record, path)
  for (const [name, inner] of subschemas(record)) {
    checkStrictSchema(inner, `${path}.${name}`, depth + 1)
  }
}

function isObjectSchema(schema: Record<string, unknown>): boolean {
  const { type } = schema
  return type === 'object' || (Array.isArray(type) && type.includes('object'))
}

function checkObject(schema: Record<string, unknown>, path: string): void {
  if (schema.additionalProperties !== false) {
    throw invalid(path, "'additionalProperties' is required to be supplied and to be false")
  }
  const required = new Set<unknown>(Array.isArray(schema.required) ? schema.required : [])
  const missing = Object.keys(Object(schema.properties)).find((name) => !required.has(name))
  if (missing !== undefined) {
    throw invalid(path, `'required' must include every property, but '${missing}' is missing`)
  }
}

function subschemas(schema: Record<string, unknown>): [string, unknown][] {
  const maps = ['properties', '$defs', 'definitions'].flatMap((keyword) =>
    Object.entries(Object(schema[keyword])).map(([name, inner]): [string, unknown] => [
      `${keyword}.${name}`,
      inner,
    ]),
  )
  const lists = ['anyOf', 'allOf', 'oneOf', 'prefixItems'].flatMap((keyword) =>
    (Array.isArray(schema[keyword]) ? schema[keyword] : []).map(
      (inner: unknown, index): [string, unknown] => [`${keyword}[${index}]`, inner],
    ),
  )
  const single: [string, unknown][] = [['items', schema.items]]
  return [...maps, ...lists, ...single]
}

function invalid(path: string, reason: string): Error {
  return failure.invalidRequest(`Invalid schema for '${path}': ${reason}.`, {
    param: path,
    code: 'invalid_json_schema',
  })
}
