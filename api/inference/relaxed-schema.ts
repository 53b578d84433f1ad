// Keywords that the workers' grammar cannot enforce. Without them a schema accepts more values.
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

type Schema = Readonly<Record<string, unknown>>

const KEYWORDS = [...DROPPED, ...MAPS, ...SCHEMAS, ...LISTS, 'pattern', 'format', '$ref']

/**
 * A schema that is not strict, without the keywords that cannot be enforced; `onDrop` receives the
 * path of each dropped keyword. The depth of the schema was bounded before.
 */
export function relaxSchema(schema: object, path: string, onDrop: (path: string) => void): object {
  const relax = (value: unknown, at: string): unknown => {
    if (Array.isArray(value)) return value.map((one) => relax(one, `${at}[]`))
    return isObject(value) ? relaxSchema(value, at, onDrop) : value
  }
  const given = schema as Schema
  const changes = numericBounds(given)
  // Iterates over keywords, because a schema may have tens of thousands of other members.
  for (const name of KEYWORDS) {
    if (!Object.hasOwn(given, name)) continue
    const value = given[name]
    const at = `${path}.${name}`
    if (isDropped(name, value, given)) {
      changes.set(name, undefined)
      onDrop(at)
    } else if (MAPS.includes(name) && isObject(value)) {
      const members = Object.entries(value)
      changes.set(
        name,
        withChanges(value, new Map(members.map(([key, one]) => [key, relax(one, `${at}.${key}`)]))),
      )
    } else if (SCHEMAS.includes(name) || LISTS.includes(name)) {
      changes.set(name, relax(value, at))
    }
  }
  return withChanges(given, changes)
}

/** The object itself if nothing differs; a member that becomes undefined is dropped. */
function withChanges(value: object, changes: ReadonlyMap<string, unknown>): object {
  const given = value as Schema
  if ([...changes].every(([name, changed]) => given[name] === changed)) return value
  // Without a prototype any name can be a member; copying in a loop takes half the time of a
  // spread.
  const copy: Record<string, unknown> = Object.create(null)
  for (const name of Object.keys(given)) {
    const next = changes.has(name) ? changes.get(name) : given[name]
    if (next !== undefined) copy[name] = next
  }
  return copy
}

function isDropped(name: string, value: unknown, schema: Schema): boolean {
  switch (name) {
    case 'additionalProperties':
      // Without the name patterns it would forbid properties that they allow.
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
function numericBounds(schema: Schema): Map<string, unknown> {
  const changes = new Map<string, unknown>()
  for (const [bound, exclusive] of [
    ['minimum', 'exclusiveMinimum'],
    ['maximum', 'exclusiveMaximum'],
  ] as const) {
    const flag = schema[exclusive]
    if (typeof flag !== 'boolean') continue
    const isMoved = flag && schema[bound] !== undefined
    changes.set(exclusive, isMoved ? schema[bound] : undefined)
    if (isMoved) changes.set(bound, undefined)
  }
  return changes
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
