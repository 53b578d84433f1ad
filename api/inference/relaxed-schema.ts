// Keywords that the grammar of the workers cannot enforce. Without them a schema accepts more
// values.
const DROPPED = new Set([
  ...['not', 'if', 'then', 'else', 'dependentSchemas', 'dependentRequired', 'dependencies'],
  ...['patternProperties', 'unevaluatedProperties', 'unevaluatedItems'],
  ...['contains', 'minContains', 'maxContains', 'uniqueItems', 'additionalItems'],
  ...['divisibleBy', 'disallow', 'extends', '$anchor', '$dynamicAnchor', '$dynamicRef'],
  ...['$recursiveAnchor', '$recursiveRef'],
])
const FORMATS_DROPPED: readonly unknown[] = [
  ...['idn-email', 'idn-hostname', 'uri-reference', 'iri', 'iri-reference', 'uri-template'],
  ...['json-pointer', 'relative-json-pointer', 'regex'],
]
// Look-around, back references, word boundaries and Unicode properties.
const PATTERN_DROPPED = /\(\?[=!<]|\\[bBpPk1-9]/
const MAPS = ['properties', '$defs', 'definitions']
const SCHEMAS = ['items', 'prefixItems', 'additionalProperties', 'propertyNames']
const LISTS = ['anyOf', 'oneOf', 'allOf']

type Schema = Record<string, unknown>

/**
 * A schema that is not strict, without what cannot be enforced; `onDrop` is called with the path of
 * each dropped keyword. The depth of the schema was bounded before.
 */
export function relaxSchema(schema: object, path: string, onDrop: (path: string) => void): object {
  // One copy: a schema may have tens of thousands of members that are no keywords.
  const relaxed: Schema = { ...schema }
  const relax = (value: unknown, at: string): unknown => {
    if (Array.isArray(value)) return value.map((one) => relax(one, `${at}[]`))
    return isObject(value) ? relaxSchema(value, at, onDrop) : value
  }
  for (const [name, value] of Object.entries(schema)) {
    if (isDropped(name, value, schema as Schema)) {
      delete relaxed[name]
      onDrop(`${path}.${name}`)
    } else if (MAPS.includes(name) && isObject(value)) {
      relaxed[name] = Object.fromEntries(
        Object.entries(value).map(([key, one]) => [key, relax(one, `${path}.${name}.${key}`)]),
      )
    } else if (SCHEMAS.includes(name) || LISTS.includes(name)) {
      relaxed[name] = relax(value, `${path}.${name}`)
    }
  }
  writeNumericBounds(relaxed)
  return relaxed
}

function isDropped(name: string, value: unknown, schema: Schema): boolean {
  switch (name) {
    case 'additionalProperties':
      // Without the patterns of names it would forbid what these allow.
      return Object.hasOwn(schema, 'patternProperties')
    case 'pattern':
      return typeof value === 'string' && PATTERN_DROPPED.test(value)
    case 'format':
      return FORMATS_DROPPED.includes(value)
    case '$ref':
      return typeof value === 'string' && value !== '#' && !value.startsWith('#/')
    default:
      return DROPPED.has(name)
  }
}

/** Draft 4 marks a bound as exclusive beside it: `{ minimum: 1, exclusiveMinimum: true }`. */
function writeNumericBounds(bounded: Schema): void {
  for (const [bound, exclusive] of [
    ['minimum', 'exclusiveMinimum'],
    ['maximum', 'exclusiveMaximum'],
  ] as const) {
    const flag = bounded[exclusive]
    if (typeof flag !== 'boolean') continue
    delete bounded[exclusive]
    if (!flag || bounded[bound] === undefined) continue
    bounded[exclusive] = bounded[bound]
    delete bounded[bound]
  }
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
