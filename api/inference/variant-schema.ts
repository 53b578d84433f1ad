/** The schema of an object whose `type` is given: what else it has. */
interface VariantShape {
  readonly required?: readonly string[]
  readonly properties: Readonly<Record<string, object>>
}

/**
 * The schema of an object of one of several shapes, told apart by its `type`; `fallback` is what an
 * object without one is. A `type` that is none of them is complained about before anything else, and
 * every other complaint is about the shape that was meant.
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
