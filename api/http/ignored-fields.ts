import type { Ajv2020, ErrorObject } from 'ajv/dist/2020.js'
import type { FastifyReply, FastifyRequest } from 'fastify'

import { nearestName } from './near-names.ts'

/**
 * The keyword that replaces `additionalProperties: false` where unknown fields are ignored. Its
 * value lists the known names.
 */
export const KNOWN_FIELDS = 'x-known-fields'
/** The keyword of a field without effect. Its value lists the values that need no report. */
export const IGNORED_EXCEPT = 'x-ignored-except'

// Distinct names in one body. Each is compared with every known one.
const DISTINCT_NAMES_MAX = 100
const REPORTED_MAX = 20
const NAME_SHOWN_MAX = 64
// Characters that do not belong into a header.
const UNSAFE = /[^\w.$\-[\]]/g

const reports = new WeakMap<object, readonly string[]>()

/** The fields of a validated body that have no effect, as paths: `messages[].cache_control`. */
export function ignoredFieldsOf(body: unknown): readonly string[] {
  return typeof body === 'object' && body !== null ? (reports.get(body) ?? []) : []
}

/** Adds fields that are found to have no effect after the validation of the body. */
export function addIgnoredFields(body: object, paths: Iterable<string>): void {
  const names = [...paths].map((path) => headerSafe(path))
  if (names.length > 0)
    reports.set(body, [...new Set([...ignoredFieldsOf(body), ...names])].slice(0, REPORTED_MAX))
}

/** An object of the body, and the fields that no schema which validated it knows. */
interface Visit {
  readonly object: Record<string, unknown>
  readonly path: string
  readonly known: readonly string[]
  unknown: readonly string[]
}

interface Place {
  readonly instancePath: string
}

/** Collects the unknown and ineffective fields of one body while it is validated. */
export class IgnoredFields {
  readonly #visits = new Map<object, Visit>()
  readonly #ineffective = new Set<string>()

  /** Adds the keywords that report to this collector. */
  addKeywords(ajv: Ajv2020): void {
    ajv.addKeyword({
      keyword: KNOWN_FIELDS,
      type: 'object',
      schemaType: 'array',
      // First of all keywords of an object: a misspelt field is named rather than the missing one.
      before: 'maxProperties',
      compile: (names: readonly string[]) => {
        const known = new Set(names)
        return (object: Record<string, unknown>, place?: Place) => {
          this.#visit(object, { known, names, path: place?.instancePath ?? '' })
          return true
        }
      },
    })
    ajv.addKeyword({
      keyword: IGNORED_EXCEPT,
      schemaType: 'array',
      compile: (values: readonly unknown[]) => (value: unknown, place?: Place) => {
        if (value !== null && !values.includes(value)) {
          this.#ineffective.add(shownPath(place?.instancePath ?? ''))
        }
        return true
      },
    })
  }

  begin(): void {
    this.#visits.clear()
    this.#ineffective.clear()
  }

  /** The complaint about an unknown field that looks like a misspelt one, or about too many. */
  complaint(): ErrorObject | undefined {
    const seen = new Set<string>()
    for (const { path, known, unknown } of this.#visits.values()) {
      for (const name of unknown) {
        const key = `${shownPath(path)}\n${name}`
        if (seen.has(key)) continue
        seen.add(key)
        const intended = nearestName(name, known)
        if (intended === undefined && seen.size <= DISTINCT_NAMES_MAX) continue
        return {
          keyword: 'additionalProperties',
          instancePath: path,
          schemaPath: `#/${KNOWN_FIELDS}`,
          params: { additionalProperty: name, ...(intended !== undefined && { intended }) },
        }
      }
    }
    return undefined
  }

  /** Removes the unknown fields of a valid body and remembers the report. */
  settle(body: unknown): void {
    if (typeof body !== 'object' || body === null) return
    const names = new Set(this.#ineffective)
    for (const { object, path, unknown } of this.#visits.values()) {
      for (const name of unknown) {
        delete object[name]
        names.add(shownPath(`${path}/${name}`))
      }
    }
    if (names.size > 0) reports.set(body, [...names].slice(0, REPORTED_MAX))
    this.begin()
  }

  #visit(
    object: Record<string, unknown>,
    schema: {
      readonly known: ReadonlySet<string>
      readonly names: readonly string[]
      readonly path: string
    },
  ): void {
    const unknown = Object.keys(object).filter((name) => !schema.known.has(name))
    const before = this.#visits.get(object)
    // Of several schemas for one object, such as alternatives, one that knows the field suffices.
    if (before === undefined) {
      this.#visits.set(object, { object, path: schema.path, known: schema.names, unknown })
    } else {
      before.unknown = before.unknown.filter((name) => !schema.known.has(name))
    }
  }
}

/** `/messages/3/cache_control` as `messages[].cache_control`, safe in a header. */
function shownPath(pointer: string): string {
  return pointer
    .slice(1)
    .split('/')
    .map((segment) => segment.replaceAll('~1', '/').replaceAll('~0', '~'))
    .map((segment) => (/^\d+$/.test(segment) ? '[]' : segment))
    .join('.')
    .replaceAll('.[]', '[]')
    .slice(0, NAME_SHOWN_MAX)
    .replace(UNSAFE, '?')
}

function headerSafe(path: string): string {
  return path.slice(-2 * NAME_SHOWN_MAX).replace(UNSAFE, '?')
}

const HEADER = 'x-millrace-ignored-parameters'

/** Reports fields that have no effect on the answer to a request. */
export function reportIgnored(request: FastifyRequest, names: Iterable<string>): void {
  for (const name of names) request.context.ignoredFields.add(name)
}

/** All reported fields of a request. */
export function reportedFields(request: FastifyRequest): readonly string[] {
  return [...new Set([...ignoredFieldsOf(request.body), ...request.context.ignoredFields])]
}

/** Lists the reported fields in the headers, just before these are sent. */
export function writeIgnoredHeader(reply: FastifyReply): void {
  const names = reportedFields(reply.request)
  if (names.length > 0) reply.header(HEADER, names.join(', '))
}
