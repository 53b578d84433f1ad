import type { Static, TObject, TProperties, TUnsafe } from 'typebox'

import { Type } from '#shared/schema-types.ts'

type Shapes = Readonly<Record<string, TProperties>>

/** The value of each variant; the fallback may lack its `type`. */
type Variant<Variants extends Shapes, Fallback extends keyof Variants> = {
  [Name in keyof Variants]: (Name extends Fallback ? { type?: Name } : { type: Name }) &
    Static<TObject<Variants[Name]>>
}[keyof Variants]

/**
 * The schema of an object with several variants, selected by its `type`; `shapes` has the other
 * properties of each, and `fallback` is the variant without a type. An unknown `type` is reported
 * first; all other errors concern the selected variant.
 */
export function variantSchema<
  const Variants extends Shapes,
  const Fallback extends keyof Variants & string = never,
>(
  shapes: Variants,
  {
    fallback,
    instead,
    ...options
  }: {
    readonly fallback?: Fallback
    /** The alternatives to other types, for the message that refuses them. */
    readonly instead?: string
    readonly description?: string
  } = {},
): TUnsafe<Variant<Variants, Fallback>> {
  const types = Object.keys(shapes)
  const conditions = Object.entries(shapes).map(([type, shape]) => {
    const { required } = Type.Object(shape) as { readonly required?: readonly string[] }
    return {
      if: {
        properties: { type: { const: type } },
        ...(type !== fallback && { required: ['type'] }),
      },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
      then: {
        properties: { type: {}, ...shape },
        ...(required !== undefined && { required }),
        additionalProperties: false,
      },
    }
  })
  const type = { type: 'string', enum: types, ...(instead !== undefined && { $comment: instead }) }
  return Type.Unsafe({
    type: 'object',
    ...(fallback === undefined && { required: ['type'] }),
    allOf: [{ properties: { type } }, ...conditions],
    ...options,
  })
}
