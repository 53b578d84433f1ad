import type { Tag, TagFormat } from '#shared/contracts/structural-tag.ts'

import { invalidValue, missingParameter } from './field-schemas.ts'
import type { SchemaBudget } from './input-limits.ts'

const REPETITIONS_MAX = 100_000
/** The most triggers, each of which is compared with every tag. */
const TRIGGERS_MAX = 128

type Json = Readonly<Record<string, unknown>>

/** The place of a value in the request, and the budget of its schemas. */
interface Place {
  readonly path: string
  readonly budget: SchemaBudget
}

/**
 * Reads a structural tag: `format`, or `structures` with `triggers`, vLLM's first form. Throws
 * `invalidRequest` that names the field.
 */
export function parseStructuralTag(value: Json, path: string, budget: SchemaBudget): TagFormat {
  // Bounds the depth before the reader recurses.
  budget.charge(value, path)
  if (value.format !== undefined) {
    return parseFormat(value.format, { path: `${path}.format`, budget })
  }
  if (value.structures === undefined) throw missingParameter(`${path}.format`)
  const place = { path: `${path}.structures`, budget }
  const tags = listOf(value.structures, place).map((entry, index): Tag => {
    const at = item(place, index)
    const structure = objectOf(entry, at)
    const content = schemaAt(structure.schema ?? {}, inside(at, 'schema'))
    const begin = textOf(structure, 'begin', at)
    return { kind: 'tag', begin, content, ends: endsOf(structure, at) }
  })
  return triggered({ ...value, excludes: [] }, tags, { path, budget })
}

function parseFormat(value: unknown, place: Place): TagFormat {
  const format = objectOf(value, place)
  const read = FORMATS[String(format.type) as keyof typeof FORMATS]
  if (read !== undefined && Object.hasOwn(FORMATS, String(format.type))) return read(format, place)
  throw invalidValue(
    `${place.path}.type`,
    `expected one of ${Object.keys(FORMATS).join(', ')}, but got ${JSON.stringify(format.type)}.`,
  )
}

/** The reader of each type. */
const FORMATS = {
  const_string: (format, at) => ({ kind: 'text', text: textOf(format, 'value', at) }),
  json_schema: jsonFormat,
  regex: (format, at) => ({
    kind: 'regex',
    pattern: textOf(format, 'pattern', at),
    path: `${at.path}.pattern`,
  }),
  grammar: (format, at) => ({
    kind: 'grammar',
    grammar: textOf(format, 'grammar', at),
    path: `${at.path}.grammar`,
  }),
  any_text: (format, at) => ({ kind: 'anyText', excludes: textsOf(format, 'excludes', at, []) }),
  sequence: (format, at) => ({ kind: 'sequence', parts: partsOf(format, at) }),
  or: (format, at) => ({ kind: 'choice', parts: partsOf(format, at) }),
  optional: (format, at) => ({ kind: 'repeat', body: contentOf(format, at), min: 0, max: 1 }),
  star: (format, at) => ({ kind: 'repeat', body: contentOf(format, at), min: 0 }),
  plus: (format, at) => ({ kind: 'repeat', body: contentOf(format, at), min: 1 }),
  repeat: repeatFormat,
  tag: parseTag,
  triggered_tags: (format, at) => triggered(format, tagsOf(format, at), at),
  tags_with_separator: (format, at) => ({
    kind: 'separated',
    tags: tagsOf(format, at),
    ...countOf(format, at),
    separator: textOf(format, 'separator', at),
  }),
} as const satisfies Record<string, (format: Json, at: Place) => TagFormat>

function jsonFormat(format: Json, at: Place): TagFormat {
  if (format.style !== undefined && format.style !== 'json') {
    throw invalidValue(`${at.path}.style`, "only 'json' is supported.")
  }
  return schemaAt(format.json_schema, inside(at, 'json_schema'))
}

function schemaAt(value: unknown, at: Place): TagFormat {
  // `true` is any value, as in JSON Schema.
  const schema = objectOf(value === true ? {} : value, at)
  return { kind: 'json', schema: at.budget.chargeLenient(schema, at.path), path: at.path }
}

function repeatFormat(format: Json, at: Place): TagFormat {
  const min = countIn(format, 'min', at) ?? 0
  const max = format.max === -1 ? undefined : countIn(format, 'max', at)
  if (max !== undefined && max < min) throw invalidValue(`${at.path}.max`, "it is below 'min'.")
  return { kind: 'repeat', body: contentOf(format, at), min, ...(max !== undefined && { max }) }
}

function parseTag(value: unknown, at: Place): Tag {
  const tag = objectOf(value, at)
  return {
    kind: 'tag',
    begin: textOf(tag, 'begin', at),
    content: contentOf(tag, at),
    ends: endsOf(tag, at),
  }
}

/** Throws unless every tag begins with a trigger, and every trigger begins a tag. */
function triggered(format: Json, tags: readonly Tag[], at: Place): TagFormat {
  const triggers = [...new Set(textsOf(format, 'triggers', at))]
  if (triggers.length === 0 || triggers.length > TRIGGERS_MAX) {
    const got = triggers.length
    throw invalidValue(
      `${at.path}.triggers`,
      `expected 1 to ${TRIGGERS_MAX} texts, but got ${got}.`,
    )
  }
  const stray = tags.find(({ begin }) => !triggers.some((trigger) => begin.startsWith(trigger)))
  if (stray !== undefined) {
    throw invalidValue(`${at.path}.triggers`, `no trigger begins ${JSON.stringify(stray.begin)}.`)
  }
  const idle = triggers.find((trigger) => !tags.some(({ begin }) => begin.startsWith(trigger)))
  if (idle !== undefined) {
    throw invalidValue(`${at.path}.triggers`, `no tag begins with ${JSON.stringify(idle)}.`)
  }
  const excludes = textsOf(format, 'excludes', at, [])
  return { kind: 'triggered', triggers, tags, excludes, ...countOf(format, at) }
}

function countOf(format: Json, at: Place) {
  return {
    atLeastOne: flagOf(format, 'at_least_one', at),
    stopAfterFirst: flagOf(format, 'stop_after_first', at),
  }
}

function partsOf(format: Json, at: Place): readonly TagFormat[] {
  const place = inside(at, 'elements')
  return listOf(format.elements, place).map((part, index) => parseFormat(part, item(place, index)))
}

function tagsOf(format: Json, at: Place): readonly Tag[] {
  const place = inside(at, 'tags')
  return listOf(format.tags, place).map((tag, index) => parseTag(tag, item(place, index)))
}

function contentOf(format: Json, at: Place): TagFormat {
  return parseFormat(format.content, inside(at, 'content'))
}

/** One text or several; an empty one counts as absent. */
function endsOf(format: Json, at: Place): readonly string[] {
  const { end = '' } = format
  const ends = typeof end === 'string' ? [end] : textsOf(format, 'end', at, [], 0)
  return ends.includes('') ? [] : ends
}

function objectOf(value: unknown, { path }: Place): Json {
  if (value === undefined) throw missingParameter(path)
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Json
  throw invalidValue(path, 'expected an object.')
}

function listOf(value: unknown, { path }: Place): readonly unknown[] {
  if (value === undefined) throw missingParameter(path)
  if (Array.isArray(value) && value.length > 0) return value
  throw invalidValue(path, 'expected a list with at least one entry.')
}

function textOf(format: Json, name: string, at: Place): string {
  const { path } = inside(at, name)
  const value = format[name]
  if (value === undefined) throw missingParameter(path)
  if (typeof value === 'string') return value
  throw invalidValue(path, 'expected a string.')
}

function textsOf(
  format: Json,
  name: string,
  at: Place,
  fallback?: readonly string[],
  lengthMin = 1,
): readonly string[] {
  const value = format[name] ?? fallback
  const { path } = inside(at, name)
  if (value === undefined) throw missingParameter(path)
  const isText = (entry: unknown) => typeof entry === 'string' && entry.length >= lengthMin
  if (Array.isArray(value) && value.every(isText)) return value
  throw invalidValue(path, 'expected a list of strings with at least one character.')
}

function flagOf(format: Json, name: string, at: Place): boolean {
  const value = format[name] ?? false
  if (typeof value === 'boolean') return value
  throw invalidValue(inside(at, name).path, 'expected true or false.')
}

function countIn(format: Json, name: string, at: Place): number | undefined {
  const value = format[name] ?? undefined
  if (value === undefined) return undefined
  const isCount = Number.isInteger(value) && Number(value) >= 0 && Number(value) <= REPETITIONS_MAX
  if (isCount) return Number(value)
  throw invalidValue(inside(at, name).path, `expected an integer of 0 to ${REPETITIONS_MAX}.`)
}

function inside({ path, budget }: Place, name: string): Place {
  return { path: `${path}.${name}`, budget }
}

function item({ path, budget }: Place, index: number): Place {
  return { path: `${path}[${index}]`, budget }
}
