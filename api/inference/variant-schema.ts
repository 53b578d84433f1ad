/** The schema of one variant, without its `type`. */
interface VariantShape {
  readonly required?: readonly string[]
  readonly properties: Readonly<Record<string, object>>
}

/**
 * The schema of an object with several variants, selected by its `type`; `fallback` is the variant
 * without one. An unknown `type` is reported first; all other errors concern the selected variant.
 */
export function variantSchema(
  shapes: Readonly<Record<string, VariantShape>>,
  fallback?: string,
): object {
  const types = Object.keys(shapes)
  const conditions = Object.entries(shapes).map(([type, { required, properties }]) => ({
    if: {
      properties: { type: { const: type } },
      ...(type !== fallback && { required: ['type'] }),
    },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
    then: {
      properties: { type: {}, ...properties },
      ...(required !== undefined && { required }),
      additionalProperties: false,
    },
  }))
  return {
    type: 'object',
    ...(fallback === undefined && { required: ['type'] }),
    allOf: [{ properties: { type: { type: 'string', enum: types } } }, ...conditions],
  }
}
