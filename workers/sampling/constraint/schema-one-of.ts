import { typesOf } from './schema-merge.ts'
import type { JsonType, Schema } from './schema-merge.ts'

/**
 * A value must match exactly one branch of `oneOf`. That is certain when each two branches differ in
 * type, in their listed values, or in a required property whose listed values differ.
 */
export function assertTellApart(
  branches: readonly Schema[],
  refuse: (reason: string) => never,
): void {
  branches.forEach((branch, index) => {
    const twin = branches.slice(0, index).findIndex((other) => !areDisjoint(branch, other))
    if (twin >= 0) {
      refuse(
        `branches ${twin} and ${index} of 'oneOf' may both match; tell them apart by type or by a ` +
          "required property with 'const', or use 'anyOf'",
      )
    }
  })
}

function areDisjoint(a: Schema, b: Schema): boolean {
  const [typesA, typesB] = [typesOf(a), typesOf(b)]
  if (
    typesA !== undefined &&
    typesB !== undefined &&
    !typesA.some((type) => overlaps(type, typesB))
  ) {
    return true
  }
  if (areValuesDisjoint(a, b)) return true
  const required = requiredOf(a).filter((name) => requiredOf(b).includes(name))
  return required.some((name) => areValuesDisjoint(propertyOf(a, name), propertyOf(b, name)))
}

function overlaps(type: JsonType, others: readonly JsonType[]): boolean {
  const isNumeric = type === 'integer' || type === 'number'
  return (
    others.includes(type) || (isNumeric && others.some((t) => t === 'integer' || t === 'number'))
  )
}

function areValuesDisjoint(a: Schema, b: Schema): boolean {
  const [listA, listB] = [valuesOf(a), valuesOf(b)]
  if (listA === undefined || listB === undefined) return false
  return !listA.some((value) => listB.includes(value))
}

/** The values that a schema lists, as JSON texts. */
function valuesOf(schema: Schema): readonly string[] | undefined {
  if (schema.const !== undefined) return [JSON.stringify(schema.const)]
  return Array.isArray(schema.enum) ? schema.enum.map((value) => JSON.stringify(value)) : undefined
}

function requiredOf(schema: Schema): readonly unknown[] {
  return Array.isArray(schema.required) ? schema.required : []
}

function propertyOf(schema: Schema, name: unknown): Schema {
  const properties = schema.properties as Readonly<Record<string, unknown>> | undefined
  const property = properties?.[String(name)]
  return typeof property === 'object' && property !== null ? (property as Schema) : {}
}
