import { failure } from '#shared/errors.ts'
import { BudgetExceededError, type WorkBudget } from '#workers/preparation/work-budget.ts'

import { surveyGrammar } from './dead-ends.ts'
import { type Grammar, GrammarBuilder } from './grammar.ts'
import { withoutIdleKeywords } from './idle-keywords.ts'
import { Intersections } from './intersection.ts'
import { JsonGrammar } from './json-grammar.ts'
import { compileListed } from './listed-values.ts'
import type { SchemaContext, SchemaPlace } from './schema-context.ts'
import { type JsonType, mergeSchemas, type Schema, typesOf } from './schema-merge.ts'
import { compileObject } from './schema-object.ts'
import { assertDistinguishable } from './schema-one-of.ts'
import { compileArray, compileNumber, compileString } from './schema-types.ts'

/**
 * Keywords of all drafts that limit valid values, or refer to schemas that do. Any other unknown
 * name is an annotation without effect, as in the specification.
 */
const UNSUPPORTED = new Set([
  ...['not', 'if', 'then', 'else', 'dependentSchemas', 'dependentRequired', 'dependencies'],
  ...['patternProperties', 'unevaluatedProperties', 'unevaluatedItems'],
  ...['contains', 'minContains', 'maxContains', 'uniqueItems', 'additionalItems'],
  ...['divisibleBy', 'disallow', 'extends', '$anchor', '$dynamicAnchor', '$dynamicRef'],
  ...['$recursiveAnchor', '$recursiveRef'],
])
/** Keywords that are enforced. */
const KEYWORDS = new Set([
  ...['type', 'nullable', 'enum', 'const', 'anyOf', 'oneOf', 'allOf', '$ref'],
  ...['pattern', 'x-lark', 'format', 'minLength', 'maxLength'],
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  ...['properties', 'required', 'additionalProperties', 'minProperties', 'maxProperties'],
  ...['propertyNames'],
  ...['items', 'prefixItems', 'minItems', 'maxItems'],
])

const NODES_MAX = 50_000 // twice the size of five thousand members; 0.2 s at most
const DEPTH_MAX = 64
const SCHEMAS_MAX = 10_000 // including combinations, which can grow with every reference

/**
 * Compiles a JSON Schema to a grammar whose texts all satisfy it; the properties of an object come
 * in the order of the schema. Throws `invalidRequest` naming the path of a keyword that cannot be
 * enforced: a constraint is enforced or refused, never ignored.
 */
export class SchemaCompiler implements SchemaContext {
  readonly json: JsonGrammar
  readonly intersections: Intersections
  readonly #param: string
  readonly #roots: unknown[] = []
  readonly #references = new Map<string, Grammar>()
  #schemasRead = 0

  /**
   * `param` is the request field of the schemas; `json` is the grammar that they become part of.
   */
  constructor(param: string, json = new JsonGrammar(new GrammarBuilder())) {
    this.#param = param
    this.json = json
    this.intersections = new Intersections(json.builder)
  }

  /** Charged for every step of the construction. */
  get budget(): WorkBudget {
    return this.json.builder.budget
  }

  /** Compiles a schema with its own `$defs`. */
  compileRoot(schema: unknown, path: string): Grammar {
    const place = { path, depth: 0, followed: [] }
    try {
      return this.#compileRoot(schema, place)
    } catch (error) {
      const isWhole = error instanceof BudgetExceededError && error.budget.isWhole
      return isWhole ? this.refuse(place, 'the schema takes too long to prepare') : raise(error)
    }
  }

  #compileRoot(schema: unknown, place: SchemaPlace): Grammar {
    this.#roots.push(schema)
    this.#references.clear()
    const grammar = this.compile(schema, place)
    const { deadEnds, numParts } = surveyGrammar(grammar)
    this.budget.charge(numParts)
    if (deadEnds.has(grammar)) {
      this.refuse(place, 'no value satisfies it, or none that comes to an end')
    }
    return grammar
  }

  compile(schema: unknown, place: SchemaPlace): Grammar {
    this.assertNodes(place, 0)
    if (schema === true) return this.json.value
    const checked = this.#check(schema, place)
    if (place.depth > DEPTH_MAX) this.refuse(place, 'the schema is nested too deeply')
    const { $ref, anyOf, oneOf, allOf, ...rest } = checked
    if (allOf !== undefined) return this.#compileAll(checked, allOf, place)
    if ($ref !== undefined) return this.#compileReference($ref, { ...rest, anyOf, oneOf }, place)
    if (anyOf !== undefined && oneOf !== undefined) {
      return this.refuse(place, "'anyOf' and 'oneOf' side by side are not supported")
    }
    if (anyOf !== undefined) return this.#compileBranches('anyOf', anyOf, rest, place)
    if (oneOf !== undefined) return this.#compileBranches('oneOf', oneOf, rest, place)
    return this.#compileValue(rest, place)
  }

  /** A schema with the target of its leading `$ref`. */
  resolve(schema: unknown, place: SchemaPlace): Schema {
    return this.#dereference(schema, place)
  }

  /** The place of a value inside the current one. */
  below(place: SchemaPlace, name: string | number): SchemaPlace {
    return { path: `${place.path}.${name}`, depth: place.depth + 1, followed: [] }
  }

  /** Refuses a schema if this many more nodes would make its grammar too large. */
  assertNodes(place: SchemaPlace, more: number): void {
    if (this.json.builder.size + more > NODES_MAX) this.refuse(place, 'the schema is too large')
  }

  refuse(place: SchemaPlace, reason: string): never {
    const [path, why] = [shorten(place.path), shorten(reason)]
    throw failure.invalidRequest(`Invalid schema at '${path}': ${why}.`, {
      param: this.#param,
      code: 'invalid_json_schema',
    })
  }

  #check(schema: unknown, place: SchemaPlace): Schema {
    this.#schemasRead += 1
    if (this.#schemasRead > SCHEMAS_MAX) this.refuse(place, 'the schema is too large')
    if (schema === false) return this.refuse(place, 'false accepts no value')
    if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) {
      return this.refuse(place, 'a schema must be an object or a boolean')
    }
    const effective = withoutIdleKeywords(schema as Schema)
    const names = Object.keys(effective)
    this.budget.charge(names.length + 1)
    const unsupported = names.find((name) => UNSUPPORTED.has(name))
    if (unsupported !== undefined) {
      this.refuse(place, `the keyword '${unsupported}' is not supported`)
    }
    const isEffective = (name: string): boolean =>
      KEYWORDS.has(name) && effective[name] !== undefined
    if (names.every(isEffective)) return effective
    return Object.fromEntries(names.filter(isEffective).map((name) => [name, effective[name]]))
  }

  #compileAll(schema: Schema, allOf: unknown, place: SchemaPlace): Grammar {
    const { allOf: _, ...rest } = schema
    const parts = this.list('allOf', allOf, place).map((part, index) =>
      this.#dereference(part, { ...place, path: `${place.path}.allOf.${index}` }),
    )
    const merged = this.#merge([rest, ...parts], place)
    return this.compile(merged, { ...place, depth: place.depth + 1 })
  }

  #compileBranches(keyword: string, list: unknown, rest: Schema, place: SchemaPlace): Grammar {
    const branches = this.list(keyword, list, place)
    const places = branches.map((_, index) => ({
      ...place,
      path: `${place.path}.${keyword}.${index}`,
      depth: place.depth + 1,
    }))
    if (keyword === 'oneOf') {
      const resolved = branches.map((branch, index) =>
        this.#dereference(branch, places[index] as SchemaPlace),
      )
      const refuse = (reason: string): never => this.refuse(place, reason)
      assertDistinguishable(resolved, { refuse, budget: this.budget })
    }
    const hasRest = Object.keys(rest).length > 0
    return this.json.builder.choiceOf(
      branches.map((branch, index) => {
        const at = places[index] as SchemaPlace
        const merged = hasRest ? this.#merge([rest, this.#dereference(branch, at)], at) : branch
        return this.compile(merged, at)
      }),
    )
  }

  #compileReference(reference: unknown, siblings: Schema, place: SchemaPlace): Grammar {
    const given = Object.entries(siblings).filter(([, value]) => value !== undefined)
    const pointer = this.#pointer(reference, place)
    const inside = { ...place, depth: place.depth + 1, followed: [...place.followed, pointer] }
    if (given.length > 0) {
      const merged = this.#merge(
        [Object.fromEntries(given), this.#checkAny(this.#target(pointer, place), place)],
        place,
      )
      return this.compile(merged, inside)
    }
    const known = this.#references.get(pointer)
    if (known !== undefined) return known
    let compiled: Grammar | undefined
    this.#references.set(
      pointer,
      this.json.builder.reference(() => compiled as Grammar),
    )
    compiled = this.compile(this.#target(pointer, place), inside)
    return compiled
  }

  #compileValue(schema: Schema, place: SchemaPlace): Grammar {
    const types = typesOf(schema)
    if (schema.const !== undefined || schema.enum !== undefined) {
      return compileListed(this, schema, place)
    }
    if (types === undefined) return this.json.value
    const { json } = this
    const compilers: Readonly<Record<JsonType, () => Grammar>> = {
      string: () => compileString(this, schema, place),
      number: () => compileNumber(this, schema, place, 'number'),
      integer: () => compileNumber(this, schema, place, 'integer'),
      object: () => compileObject(this, schema, place),
      array: () => compileArray(this, schema, place),
      boolean: () => json.boolean,
      null: () => json.null,
    }
    return json.builder.choiceOf(
      types.map((type) => {
        if (!Object.hasOwn(compilers, type)) this.refuse(place, `there is no type '${type}'`)
        return compilers[type]()
      }),
    )
  }

  /** Replaces a leading `$ref` of a schema by its target. */
  #dereference(schema: unknown, place: SchemaPlace): Schema {
    const checked = this.#checkAny(schema, place)
    const { $ref, ...rest } = checked
    if ($ref === undefined) return checked
    const pointer = this.#pointer($ref, place)
    const at = { ...place, followed: [...place.followed, pointer] }
    const target = this.#dereference(this.#target(pointer, place), at)
    return Object.keys(rest).length === 0 ? target : this.#merge([rest, target], place)
  }

  #checkAny(schema: unknown, place: SchemaPlace): Schema {
    return schema === true ? {} : this.#check(schema, place)
  }

  #merge(schemas: readonly Schema[], place: SchemaPlace): Schema {
    const refuse = (reason: string): never => this.refuse(place, reason)
    return mergeSchemas(schemas, { refuse, budget: this.budget })
  }

  #pointer(reference: unknown, place: SchemaPlace): string {
    if (typeof reference !== 'string' || !/^#(\/|$)/.test(reference)) {
      return this.refuse(place, "'$ref' must point into the schema itself, such as '#/$defs/name'")
    }
    if (place.followed.includes(reference)) {
      return this.refuse(place, `'${reference}' refers to itself without a value in between`)
    }
    if (place.followed.length > DEPTH_MAX) this.refuse(place, 'too many references in a row')
    this.budget.chargeText(reference.length)
    return reference
  }

  #target(pointer: string, place: SchemaPlace): unknown {
    const names = pointer
      .split('/')
      .slice(1)
      .map((name) => decodeName(name).replaceAll('~1', '/').replaceAll('~0', '~'))
    let found: unknown = this.#roots.at(-1)
    for (const name of names) {
      const isContainer = typeof found === 'object' && found !== null && Object.hasOwn(found, name)
      if (!isContainer) return this.refuse(place, `'${pointer}' points nowhere`)
      found = (found as Record<string, unknown>)[name]
    }
    return found
  }

  /** The entries of a keyword that must be a list. */
  list(keyword: string, value: unknown, place: SchemaPlace): readonly unknown[] {
    if (Array.isArray(value) && value.length > 0) return value
    return this.refuse(place, `'${keyword}' must be a list with at least one entry`)
  }
}

function raise(error: unknown): never {
  throw error
}

const SHOWN_CHARACTERS_MAX = 400

/** Names and patterns of the client may be megabytes long. */
function shorten(text: string): string {
  return text.length > SHOWN_CHARACTERS_MAX ? `${text.slice(0, SHOWN_CHARACTERS_MAX)}…` : text
}

function decodeName(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    // A stray percent sign is literal.
    return name
  }
}
