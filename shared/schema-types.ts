import type { Type as TypeBox } from 'typebox'

// TypeBox's types with builders of our own. TypeBox itself brings 373 modules, which took a sixth
// of the start-up time of an API process and 7.5 MiB. See decision 0138.

type Options = Readonly<Record<string, unknown>>

/** Marks a property that may be left out. Hidden, because it is not a keyword of JSON Schema. */
const OPTIONAL = '~optional'

const ofKind =
  (type: string) =>
  (options?: Options): object => ({ type, ...options })

const builders = {
  Array: (items: object, options?: Options): object => ({ type: 'array', items, ...options }),
  Boolean: ofKind('boolean'),
  Enum: (values: readonly unknown[], options?: Options): object => ({ enum: values, ...options }),
  Integer: ofKind('integer'),
  Literal: (value: unknown, options?: Options): object => ({
    type: typeof value,
    const: value,
    ...options,
  }),
  Null: ofKind('null'),
  Number: ofKind('number'),
  Object(properties: Readonly<Record<string, object>>, options?: Options): object {
    const required = Object.keys(properties).filter((name) => !isOptional(properties[name]))
    return { type: 'object', ...(required.length > 0 && { required }), properties, ...options }
  },
  Optional: (schema: object): object =>
    Object.defineProperty({ ...schema }, OPTIONAL, { value: true }),
  /** An object with any names. */
  Record: (_names: object, value: object, options?: Options): object => ({
    type: 'object',
    patternProperties: { '^.*$': value },
    ...options,
  }),
  String: ofKind('string'),
  Union: (anyOf: readonly object[], options?: Options): object => ({ anyOf, ...options }),
  Unknown: (options?: Options): object => ({ ...options }),
  Unsafe: (schema: object): object => ({ ...schema }),
}

/** Builds JSON Schema whose type TypeScript knows. */
export const Type = builders as unknown as Pick<typeof TypeBox, keyof typeof builders>

function isOptional(schema: object | undefined): boolean {
  return schema !== undefined && Object.hasOwn(schema, OPTIONAL)
}
