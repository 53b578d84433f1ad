/**
 * Keywords of all drafts that limit what is valid, or say where to look for what does. Any other
 * unknown name is an annotation, as the specification has it, and changes nothing.
 */
export const UNSUPPORTED = new Set([
  ...['not', 'if', 'then', 'else', 'dependentSchemas', 'dependentRequired', 'dependencies'],
  ...['patternProperties', 'unevaluatedProperties', 'unevaluatedItems'],
  ...['contains', 'minContains', 'maxContains', 'uniqueItems', 'additionalItems'],
  ...['divisibleBy', 'disallow', 'extends', '$anchor', '$dynamicAnchor', '$dynamicRef'],
  ...['$recursiveAnchor', '$recursiveRef'],
])
/** Keywords that are enforced. */
export const KEYWORDS = new Set([
  ...['type', 'nullable', 'enum', 'const', 'anyOf', 'oneOf', 'allOf', '$ref'],
  ...['pattern', 'format', 'minLength', 'maxLength'],
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  ...['properties', 'required', 'additionalProperties', 'minProperties', 'maxProperties'],
  ...['propertyNames'],
  ...['items', 'prefixItems', 'minItems', 'maxItems'],
])
