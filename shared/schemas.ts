import type { Static, TEnum, TSchema, TUnsafe } from 'typebox'

import { Type } from '#shared/schema-types.ts'

// JSON Schema in the forms that clients and operators read. TypeBox writes alternatives as a union;
// a list of types gives the validator one clear message instead. Each builder derives the type of
// the value from the schema.

interface TypesByName {
  readonly string: string
  readonly number: number
  readonly integer: number
  readonly boolean: boolean
  readonly object: object
  readonly array: unknown[]
  readonly null: null
}

/** A value of one of these JSON types. */
export function ofType<const Name extends keyof TypesByName>(
  names: readonly Name[],
  options: object = {},
): TUnsafe<TypesByName[Name]> {
  return Type.Unsafe({ type: names.length === 1 ? names[0] : names, ...options })
}

/** The same schema, which also accepts null. Throws for a schema without a JSON type. */
export function nullable<Schema extends TSchema>(schema: Schema): TUnsafe<Static<Schema> | null> {
  const { type, enum: values } = schema as { type?: string | string[]; enum?: unknown[] }
  if (type === undefined) throw new Error('null cannot be added to a schema without a type')
  return Type.Unsafe({
    ...schema,
    type: [type, 'null'].flat(),
    ...(values !== undefined && { enum: [...values, null] }),
  })
}

/** One of these strings. */
export function choice<const Values extends string[]>(
  values: readonly [...Values],
  options: object = {},
): TEnum<Values> {
  return Type.Enum(values, { type: 'string', ...options })
}

/** An object with any names, and values of one schema. */
export function mapOf<Schema extends TSchema>(
  value: Schema,
  options: object = {},
): TUnsafe<Record<string, Static<Schema>>> {
  return Type.Unsafe({ type: 'object', additionalProperties: value, ...options })
}
