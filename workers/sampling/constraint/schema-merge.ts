import type { WorkBudget } from '#workers/preparation/work-budget.ts'

/** The keywords of one schema that constrain its values, without annotations. */
export type Schema = Readonly<Record<string, unknown>>

/** The types of JSON Schema. */
export type JsonType = 'string' | 'number' | 'integer' | 'object' | 'array' | 'boolean' | 'null'

type Refuse = (reason: string) => never

const LARGER = new Set(['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'])
const SMALLER = new Set(['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'])
/** The types that keywords apply to, which are assumed if `type` is absent. */
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

/**
 * One schema that is equivalent to all together; refuses combinations that one schema cannot
 * express.
 */
export function mergeSchemas(
  schemas: readonly Schema[],
  options: { readonly refuse: Refuse; readonly budget: WorkBudget },
): Schema {
  const [only] = schemas
  if (schemas.length === 1 && only !== undefined) return only
  const sum = new SchemaSum(options)
  for (const schema of schemas) sum.add(withSpelledNull(schema))
  return sum.merged()
}

/** `nullable` belongs to the `type` of its own schema, and must not widen another one. */
function withSpelledNull(schema: Schema): Schema {
  const { nullable, ...rest } = schema
  if (nullable !== true || rest.type === undefined) return schema
  return { ...rest, type: [...new Set([rest.type, 'null'].flat())] }
}

/** Adds schemas one by one; each costs only its own size. */
class SchemaSum {
  readonly #refuse: Refuse
  readonly #budget: WorkBudget
  readonly #keywords = new Map<string, unknown>()
  /**
   * By name, the different schemas of a property; used from the second schema with `properties` on.
   */
  #properties: Map<string, Map<string, unknown>> | undefined
  #required: Set<unknown> | undefined
  #allOf: unknown[] | undefined
  /** Listed values by their text. */
  #listed: Map<string, unknown> | undefined
  /** The texts of values that several schemas may share. */
  readonly #texts = new Map<object, string>()

  constructor({ refuse, budget }: { readonly refuse: Refuse; readonly budget: WorkBudget }) {
    this.#refuse = refuse
    this.#budget = budget
  }

  add(schema: Schema): void {
    this.#budget.charge(Object.keys(schema).length + 1)
    this.#refuseClosedExtension(schema)
    for (const [name, value] of Object.entries(schema)) {
      const has = this.#keywords.has(name)
      this.#keywords.set(name, has ? this.#merge(name, this.#keywords.get(name), value) : value)
    }
  }

  merged(): Schema {
    const merged = Object.fromEntries(this.#keywords)
    if (this.#required !== undefined) merged.required = [...this.#required]
    if (this.#allOf !== undefined) merged.allOf = this.#allOf
    if (this.#listed !== undefined) merged.enum = [...this.#listed.values()]
    if (this.#properties !== undefined) {
      const entries = [...this.#properties].map(([name, schemas]) => {
        const different = [...schemas.values()]
        return [name, different.length === 1 ? different[0] : { allOf: different }] as const
      })
      merged.properties = Object.fromEntries(entries)
    }
    return merged
  }

  #merge(name: string, a: unknown, b: unknown): unknown {
    switch (name) {
      case 'properties':
        this.#properties ??= this.#addProperties(new Map(), a)
        this.#addProperties(this.#properties, b)
        return a
      case 'required':
        this.#required ??= this.#addAll(new Set<unknown>(), name, a)
        this.#addAll(this.#required, name, b)
        return a
      case 'enum':
        this.#keepCommon(a, b)
        return a
      case 'allOf':
        this.#allOf ??= [...this.#list(name, a)]
        for (const part of this.#list(name, b)) this.#allOf.push(part)
        return a
      default:
        return this.#mergeSmall(name, a, b)
    }
  }

  #mergeSmall(name: string, a: unknown, b: unknown): unknown {
    if (this.#textOf(a) === this.#textOf(b)) return a
    if (LARGER.has(name)) return Math.max(Number(a), Number(b))
    if (SMALLER.has(name)) return Math.min(Number(a), Number(b))
    if (name === 'type') {
      const common = commonTypes([a].flat(), [b].flat())
      return common.length > 0 ? common : this.#refuse('the combined types exclude each other')
    }
    if (name === 'additionalProperties' && (a === false || b === false)) return false
    return this.#refuse(`two different values of '${name}' cannot be combined`)
  }

  #addProperties(
    sum: Map<string, Map<string, unknown>>,
    properties: unknown,
  ): Map<string, Map<string, unknown>> {
    const isObject = typeof properties === 'object' && !Array.isArray(properties)
    if (!isObject || properties === null) return this.#refuse("'properties' must be an object")
    for (const [name, schema] of Object.entries(properties)) {
      this.#budget.charge()
      const known = sum.get(name)
      if (known === undefined) sum.set(name, new Map([[this.#textOf(schema), schema]]))
      else known.set(this.#textOf(schema), schema)
    }
    return sum
  }

  #addAll(sum: Set<unknown>, name: string, value: unknown): Set<unknown> {
    const list = this.#list(name, value)
    this.#budget.charge(list.length)
    for (const entry of list) sum.add(entry)
    return sum
  }

  /** Keeps the values in both lists, in the order of the first list. */
  #keepCommon(a: unknown, b: unknown): void {
    const texts = new Set(this.#list('enum', b).map((value) => this.#textOf(value)))
    const listed =
      this.#listed ?? this.#list('enum', a).map((value) => [this.#textOf(value), value] as const)
    this.#listed = new Map([...listed].filter(([text]) => texts.has(text)))
  }

  #list(name: string, value: unknown): readonly unknown[] {
    return Array.isArray(value) ? value : this.#refuse(`'${name}' must be a list`)
  }

  #textOf(value: unknown): string {
    const key = typeof value === 'object' && value !== null ? value : undefined
    const known = key && this.#texts.get(key)
    if (known !== undefined) return known
    const text = JSON.stringify(value) ?? ''
    this.#budget.chargeText(text.length)
    if (key !== undefined) this.#texts.set(key, text)
    return text
  }

  /** `additionalProperties` sees only its own schema's properties, so both must list the same. */
  #refuseClosedExtension(added: Schema): void {
    const own = (added.properties ?? {}) as Schema
    const { additionalProperties: ownLimit = true } = added
    const sumLimit = this.#keywords.get('additionalProperties') ?? true
    if (this.#keywords.size === 0) return
    // Each loop ends at the first name that the other schema lacks, so neither is longer than
    // `own`.
    if (sumLimit !== true) {
      for (const name of Object.keys(own)) if (!this.#hasProperty(name)) this.#refuseOutside(name)
    }
    if (ownLimit !== true) {
      for (const name of this.#propertyNames()) {
        if (!Object.hasOwn(own, name)) this.#refuseOutside(name)
      }
    }
  }

  #refuseOutside(name: string): never {
    return this.#refuse(
      `'additionalProperties' forbids or limits '${name}' of the schema it is combined with`,
    )
  }

  #hasProperty(name: string): boolean {
    if (this.#properties !== undefined) return this.#properties.has(name)
    return Object.hasOwn((this.#keywords.get('properties') ?? {}) as Schema, name)
  }

  #propertyNames(): Iterable<string> {
    return this.#properties?.keys() ?? Object.keys(Object(this.#keywords.get('properties')))
  }
}

/** The types that both lists allow; every integer is a number. */
export function commonTypes(a: readonly unknown[], b: readonly unknown[]): unknown[] {
  const [inA, inB] = [new Set(a), new Set(b)]
  const allows = (types: ReadonlySet<unknown>, type: unknown) =>
    types.has(type) || (type === 'integer' && types.has('number'))
  return [...new Set([...a, ...b])].filter((type) => allows(inA, type) && allows(inB, type))
}
