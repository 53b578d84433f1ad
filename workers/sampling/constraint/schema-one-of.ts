import { isDeepStrictEqual } from 'node:util'

import { commonTypes, typesOf } from './schema-merge.ts'
import type { Schema } from './schema-merge.ts'

const ANY = ['string', 'number', 'object', 'array', 'boolean', 'null'] as const

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
  if (areValuesDisjoint(a, b)) return true
  const shared = [...sharedTypes(a, b), ...sharedTypes(b, a)]
  if (shared.length === 0) return true
  // Only objects have properties to be told apart by.
  if (shared.some((type) => type !== 'object')) return false
  const required = requiredOf(a).filter((name) => requiredOf(b).includes(name))
  return required.some((name) => areValuesDisjoint(propertyOf(a, name), propertyOf(b, name)))
}

/**
 * The types that are written for one schema and valid for the other. A schema that does not state
 * its type takes any other as well, though only the type that its keywords speak of is written.
 */
function sharedTypes(writer: Schema, reader: Schema): readonly unknown[] {
  const valid = reader.type === undefined ? ANY : (typesOf(reader) ?? ANY)
  return commonTypes(typesOf(writer) ?? ANY, valid)
}

function areValuesDisjoint(a: Schema, b: Schema): boolean {
  const [listA, listB] = [valuesOf(a), valuesOf(b)]
  if (listA === undefined || listB === undefined) return false
  return !listA.some((value) => listB.some((other) => isDeepStrictEqual(value, other)))
}

/** The values that a schema lists. */
function valuesOf(schema: Schema): readonly unknown[] | undefined {
  if (schema.const !== undefined) return [schema.const]
  return Array.isArray(schema.enum) ? schema.enum : undefined
}

function requiredOf(schema: Schema): readonly unknown[] {
  return Array.isArray(schema.required) ? schema.required : []
}

function propertyOf(schema: Schema, name: unknown): Schema {
  const properties = schema.properties as Readonly<Record<string, unknown>> | undefined
  const property = properties?.[String(name)]
  return typeof property === 'object' && property !== null ? (property as Schema) : {}
}
