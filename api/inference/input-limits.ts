import { failure, type ServiceError } from '#shared/errors.ts'
import { JSON_TEXT_LIMITS, judgeJson } from '#shared/json.ts'

import { relaxSchema } from './relaxed-schema.ts'

/**
 * Limits of all JSON Schemas of one request together, checked before a job is queued. 128 tools of
 * 3 KB each and enums of some thousand values fit, and building a grammar stays within a second.
 */
export const SCHEMA_LIMITS = {
  /** Characters of all names and strings. */
  characters: 1024 * 1024,
  /** Members and items. */
  values: 60_000,
  /** How deep arrays and objects may be nested. */
  depth: 64,
  /** Subschemas in `allOf`, `anyOf` and `oneOf`. */
  branches: 2000,
  /** Values of one `enum`. */
  enumValues: 10_000,
  /** Characters of one `pattern`. */
  patternCharacters: 4096,
} as const

const BRANCH_KEYWORDS: readonly string[] = ['allOf', 'anyOf', 'oneOf']

/** The budget of one request, which all of its schemas share. */
export class SchemaBudget {
  /** The paths of schema keywords that are not enforced. */
  readonly ignored = new Set<string>()
  #characters = 0
  #values = 0
  #branches = 0

  /** Charges a schema that is not strict, and drops the keywords that cannot be enforced. */
  chargeLenient(schema: object, param: string): object {
    this.charge(schema, param)
    return relaxSchema(schema, param, (path) => this.ignored.add(path))
  }

  /** Charges a schema. Throws `invalidRequest` that names its field and the limit. */
  charge(schema: unknown, param: string): void {
    // An explicit stack: a schema is bounded before any code recurses into it.
    const open: { readonly value: object; readonly depth: number; readonly keyword: string }[] = []
    const charge = (value: unknown, depth: number, keyword: string): void => {
      this.#values += 1
      if (typeof value === 'string') this.#chargeText(value, keyword, param)
      if (this.#values > SCHEMA_LIMITS.values) throw tooLarge(param, 'values', SCHEMA_LIMITS.values)
      if (typeof value === 'object' && value !== null) open.push({ value, depth, keyword })
    }
    charge(schema, 0, '')
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const { value, depth, keyword } = next
      if (depth >= SCHEMA_LIMITS.depth) throw tooLarge(param, 'levels', SCHEMA_LIMITS.depth)
      if (Array.isArray(value)) this.#chargeList(value, keyword, param)
      for (const name of Object.keys(value)) {
        if (!Array.isArray(value)) this.#chargeText(name, '', param)
        charge((value as Readonly<Record<string, unknown>>)[name], depth + 1, name)
      }
    }
  }

  #chargeText(text: string, keyword: string, param: string): void {
    const { characters, patternCharacters } = SCHEMA_LIMITS
    this.#characters += text.length
    if (this.#characters > characters) throw tooLarge(param, 'characters', characters)
    if (keyword === 'pattern' && text.length > patternCharacters) {
      throw tooLarge(`${param}.pattern`, 'characters in a pattern', patternCharacters)
    }
  }

  #chargeList(list: readonly unknown[], keyword: string, param: string): void {
    const { values, branches, enumValues } = SCHEMA_LIMITS
    if (list.length > values) throw tooLarge(param, 'values', values)
    if (keyword === 'enum' && list.length > enumValues) {
      throw tooLarge(param, 'values in an enum', enumValues)
    }
    if (!BRANCH_KEYWORDS.includes(keyword)) return
    this.#branches += list.length
    if (this.#branches > branches) throw tooLarge(param, 'branches', branches)
  }
}

function tooLarge(param: string, what: string, limit: number): ServiceError {
  return failure.invalidRequest(
    `Invalid schema for '${param}': the schemas of a request may have at most ${limit} ${what}.`,
    { param, code: 'invalid_json_schema' },
  )
}

/** Throws `invalidRequest` that names the field when JSON text inside a string is too complex. */
export function checkJsonText(text: string, param: string): void {
  const fault = judgeJson(Buffer.from(text), JSON_TEXT_LIMITS)
  if (fault === undefined) return
  throw failure.invalidRequest(`Invalid '${param}': ${fault.message}`, {
    param,
    code: 'json_too_complex',
  })
}
