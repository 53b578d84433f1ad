/** The keywords of one schema that constrain its values, annotations left out. */
export type Schema = Readonly<Record<string, unknown>>

/** The types of JSON Schema. */
export type JsonType = 'string' | 'number' | 'integer' | 'object' | 'array' | 'boolean' | 'null'

type Refuse = (reason: string) => never

const LARGER = new Set(['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'])
const SMALLER = new Set(['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'])
/** The types that keywords speak of, which are meant when `type` does not say. */
export const IMPLIED: Readonly<Record<string, JsonType>> = {
  properties: 'object',
  required: 'object',
  additionalProperties: 'object',
  propertyNames: 'object',
  minProperties: 'object',
  maxProperties: 'object',
  items: 'array',
  prefixItems: 'array',
  minItems: 'array',
  maxItems: 'array',
  pattern: 'string',
  format: 'string',
  minLength: 'string',
  maxLength: 'string',
  minimum: 'number',
  multipleOf: 'number',
  maximum: 'number',
  exclusiveMinimum: 'number',
  exclusiveMaximum: 'number',
}

/** The types that a schema allows, or undefined when it allows any. */
export function typesOf(schema: Schema): readonly JsonType[] | undefined {
  const { type, nullable } = schema
  const implied = Object.keys(schema).flatMap((name) => IMPLIED[name] ?? [])
  const stated = type === undefined ? [...new Set(implied)] : [type].flat()
  if (stated.length === 0) return undefined
  const types = nullable === true ? [...stated, 'null'] : stated
  return [...new Set(types)] as JsonType[]
}

/** One schema that demands what both demand; refuses what cannot be said in one. */
export function mergeSchemas(one: Schema, other: Schema, refuse: Refuse): Schema {
  const [a, b] = [withSpelledNull(one), withSpelledNull(other)]
  refuseClosedExtension(a, b, refuse)
  const merged: Record<string, unknown> = { ...a }
  for (const [name, value] of Object.entries(b)) {
    merged[name] = Object.hasOwn(a, name) ? mergeKeyword(name, a[name], value, refuse) : value
  }
  return merged
}

/** `nullable` belongs to the `type` beside it, and must not widen another schema's. */
function withSpelledNull(schema: Schema): Schema {
  const { nullable, ...rest } = schema
  if (nullable !== true || rest.type === undefined) return schema
  return { ...rest, type: [...new Set([rest.type, 'null'].flat())] }
}

function mergeKeyword(name: string, a: unknown, b: unknown, refuse: Refuse): unknown {
  if (JSON.stringify(a) === JSON.stringify(b)) return a
  if (LARGER.has(name)) return Math.max(Number(a), Number(b))
  if (SMALLER.has(name)) return Math.min(Number(a), Number(b))
  if (name === 'required') return [...new Set([...(a as unknown[]), ...(b as unknown[])])]
  if (name === 'allOf') return [...(a as unknown[]), ...(b as unknown[])]
  if (name === 'type') {
    const common = commonTypes([a].flat(), [b].flat())
    return common.length > 0 ? common : refuse('the combined types exclude each other')
  }
  if (name === 'enum') {
    const texts = new Set((b as unknown[]).map((value) => JSON.stringify(value)))
    return (a as unknown[]).filter((value) => texts.has(JSON.stringify(value)))
  }
  if (name === 'properties') return mergeProperties(a as Schema, b as Schema)
  if (name === 'additionalProperties' && (a === false || b === false)) return false
  return refuse(`two different values of '${name}' cannot be combined`)
}

/** The types that both lists allow; every integer is a number. */
export function commonTypes(a: readonly unknown[], b: readonly unknown[]): unknown[] {
  const allows = (list: readonly unknown[], type: unknown) =>
    list.includes(type) || (type === 'integer' && list.includes('number'))
  return [...new Set([...a, ...b])].filter((type) => allows(a, type) && allows(b, type))
}

function mergeProperties(a: Schema, b: Schema): Schema {
  const merged: Record<string, unknown> = { ...a }
  for (const [name, schema] of Object.entries(b)) {
    merged[name] = Object.hasOwn(a, name) ? { allOf: [a[name], schema] } : schema
  }
  return merged
}

/** `additionalProperties` sees only its own schema's properties, so both must list the same. */
function refuseClosedExtension(a: Schema, b: Schema, refuse: Refuse): void {
  for (const [closed, other] of [
    [a, b],
    [b, a],
  ] as const) {
    const { additionalProperties: limit = true } = closed
    if (limit === true) continue
    const own = (closed.properties ?? {}) as Schema
    const foreign = Object.keys((other.properties ?? {}) as Schema)
    const outside = foreign.find((name) => !Object.hasOwn(own, name))
    if (outside !== undefined) {
      refuse(
        `'additionalProperties' forbids or limits '${outside}' of the schema it is combined with`,
      )
    }
  }
}
