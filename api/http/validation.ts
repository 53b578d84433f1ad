import { isUtf8 } from 'node:buffer'

import type { Ajv2020, ErrorObject, ValidateFunction } from 'ajv/dist/2020.js'
import type {
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  FastifySchema,
  FastifySchemaCompiler,
} from 'fastify'

import { failure, type ServiceError } from '#shared/errors.ts'
import { judgeJson } from '#shared/json.ts'
import { createAjv } from '#shared/validation.ts'

import { nearestName } from './near-names.ts'
import { readTexts } from './read-text.ts'

/**
 * Validates client input. Bodies keep their types: a quoted number is an error. Text of URLs and
 * headers is converted to the type of its schema before it is checked, so that bounds apply to the
 * number.
 */
export function registerValidation(app: FastifyInstance): void {
  app.setValidatorCompiler(validatorCompiler('refuse'))
}

/** Whether a field that its schema does not know is refused, or ignored and reported. */
export type UnknownFields = 'refuse' | 'ignore'

/** Compiles the schemas of requests; `unknownFields` applies to bodies. */
export function validatorCompiler(
  unknownFields: UnknownFields,
): FastifySchemaCompiler<FastifySchema> {
  const refusing = checkerOf('refuse')
  const checker = unknownFields === 'refuse' ? refusing : checkerOf('ignore')
  return ({ schema, httpPart }) =>
    httpPart === 'body'
      ? compileLater(checker, schema as object)
      : readFirst(compileLater(refusing, schema as object), schema as object)
}

function readFirst(validate: Validate, schema: object): Validate {
  const validateText: Validate = (value) => {
    readTexts(schema, value)
    const isValid = validate(value)
    validateText.errors = validate.errors ?? null
    return isValid
  }
  return validateText
}

/** Whether a value matches its schema; `errors` describes the last mismatch. */
export interface Validate {
  (value: unknown): boolean
  errors?: ErrorObject[] | null
}

/** Compiles schemas of values that are not coerced, such as the bodies of batch lines. */
export function schemaCompiler(
  unknownFields: UnknownFields = 'refuse',
): (schema: object) => Validate {
  const checker = checkerOf(unknownFields)
  return (schema) => compileLater(checker, schema)
}

/** For routes that check their body themselves: the schema serves only the document. */
export function bodyUnchecked(app: FastifyInstance): FastifySchemaCompiler<unknown> {
  return (part) => {
    const validate = part.httpPart === 'body' ? undefined : app.validatorCompiler?.(part)
    return validate ?? (() => true)
  }
}

/** Compiles a schema on first use: compiling all of them would take a quarter of the start. */
function compileLater(checker: () => Checker, schema: object): Validate {
  let compiled: ValidateFunction | undefined
  const validate: Validate = (value) => {
    const { ajv, fields, prepare } = checker()
    compiled ??= ajv.compile(prepare(schema))
    fields.begin()
    const isValid = compiled(value) === true
    const complaint = fields.complaint()
    validate.errors = complaint === undefined ? (compiled.errors ?? null) : [complaint]
    if (complaint !== undefined) return false
    if (isValid) fields.settle(value)
    return isValid
  }
  return validate
}

/** A validator, the fields without effect that it found, and the preparation of its schemas. */
interface Checker {
  readonly ajv: Ajv2020
  readonly fields: IgnoredFields
  prepare(schema: object): object
}

/** A checker that is created when it is first used. */
function checkerOf(unknownFields: UnknownFields): () => Checker {
  let checker: Checker | undefined
  return () => (checker ??= createChecker(unknownFields))
}

function createChecker(unknownFields: UnknownFields): Checker {
  const ajv = createAjv()
  const fields = new IgnoredFields()
  fields.addKeywords(ajv)
  // The validator recognizes a schema that it has compiled by its identity.
  const prepared = new WeakMap<object, object>()
  const prepare = (schema: object): object => {
    const known = prepared.get(schema) ?? prepareSchema(schema, unknownFields)
    prepared.set(schema, known)
    return known
  }
  return { ajv, fields, prepare }
}

/** Keywords whose values are not schemas. */
export const LITERALS: readonly string[] = ['enum', 'const', 'default', 'examples', 'required']

/**
 * The schema with the range of safe integers for every integer without bounds: beyond it, doubles
 * are inexact, and the database cannot store the number. Where unknown fields are ignored, closed
 * objects list their known fields instead.
 */
function prepareSchema(schema: object, unknownFields: UnknownFields): object {
  const prepare = (value: unknown): unknown =>
    typeof value === 'object' && value !== null ? prepareSchema(value, unknownFields) : value
  if (Array.isArray(schema)) return schema.map(prepare)
  const copy = Object.fromEntries(
    Object.entries(schema).map(([key, value]) => [
      key,
      LITERALS.includes(key) ? value : prepare(value),
    ]),
  )
  return boundInteger(unknownFields === 'ignore' ? openObject(copy) : copy)
}

function openObject({
  additionalProperties,
  ...schema
}: Record<string, unknown>): Record<string, unknown> {
  if (additionalProperties === undefined) return schema
  if (additionalProperties !== false) return { ...schema, additionalProperties }
  return { ...schema, [KNOWN_FIELDS]: Object.keys(schema.properties ?? {}) }
}

function boundInteger(schema: Record<string, unknown>): object {
  const types = [schema.type].flat()
  if (!types.includes('integer') || types.includes('number')) return schema
  const hasMaximum = 'maximum' in schema || 'exclusiveMaximum' in schema
  const hasMinimum = 'minimum' in schema || 'exclusiveMinimum' in schema
  return {
    ...schema,
    ...(!hasMaximum && { maximum: Number.MAX_SAFE_INTEGER }),
    ...(!hasMinimum && { minimum: Number.MIN_SAFE_INTEGER }),
  }
}

/**
 * Parses JSON, also without a content type. The structure of a body is bounded before it is parsed:
 * a million small objects take far more memory and event-loop time than their bytes.
 */
export function registerJsonBody(app: FastifyInstance, types = ['application/json']): void {
  const parse = app.getDefaultJsonParser('error', 'error')
  app.removeContentTypeParser(types)
  app.addContentTypeParser(types, { parseAs: 'buffer' }, (request, body, done) => {
    // Older clients send this header even on routes without a body.
    const hasBody = request.routeOptions.schema?.body !== undefined
    if (body.length === 0 && !hasBody) return done(null, undefined)
    const fault = judgeJson(body as Buffer)
    if (fault !== undefined) return done(fault)
    // Lossy decoding would replace invalid bytes.
    if (!isUtf8(body as Buffer)) return done(notUtf8())
    // Parsing and validating a large body take separate turns of the event loop.
    const end: typeof done =
      body.length < LARGE_BODY_BYTES ? done : (...result) => setImmediate(done, ...result)
    // The parser reports its result through the callback.
    void parse(request, (body as Buffer).toString('utf8'), end)
  })
}

/** A body of this size takes milliseconds to parse. */
const LARGE_BODY_BYTES = 256 * 1024

function notUtf8(): ServiceError {
  return failure.invalidRequest('The JSON body is not valid UTF-8.', { code: 'invalid_utf8' })
}

/**
 * The keyword that replaces `additionalProperties: false` where unknown fields are ignored. Its
 * value lists the known names.
 */
const KNOWN_FIELDS = 'x-known-fields'
/** The keyword of a field without effect. Its value lists the values that need no report. */
export const IGNORED_EXCEPT = 'x-ignored-except'

// The number of distinct unknown names in one body, each of which is compared with every known
// name.
const DISTINCT_NAMES_MAX = 100
const REPORTED_MAX = 20
const NAME_SHOWN_MAX = 64
// Characters that may not occur in the header.
const UNSAFE = /[^\w.$\-[\]]/g

const reports = new WeakMap<object, readonly string[]>()

/** The fields of a validated body that have no effect, as paths: `messages[].cache_control`. */
export function ignoredFieldsOf(body: unknown): readonly string[] {
  return typeof body === 'object' && body !== null ? (reports.get(body) ?? []) : []
}

/** Adds fields that turn out to have no effect after the validation of the body. */
export function addIgnoredFields(body: object, paths: Iterable<string>): void {
  const names = [...paths].map((path) => headerSafe(path))
  if (names.length > 0)
    reports.set(body, [...new Set([...ignoredFieldsOf(body), ...names])].slice(0, REPORTED_MAX))
}

/** An object of the body, and the fields that are unknown to every schema that validated it. */
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
class IgnoredFields {
  readonly #visits = new Map<object, Visit>()
  /** The unknown names by the displayed path of their objects. */
  readonly #unknown = new Map<string, Set<string>>()
  readonly #ineffective = new Set<string>()

  /** Adds the keywords that report to this collector. */
  addKeywords(ajv: Ajv2020): void {
    ajv.addKeyword({
      keyword: KNOWN_FIELDS,
      type: 'object',
      schemaType: 'array',
      // This keyword is checked first, so that a misspelt field is reported before a missing one.
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
    this.#unknown.clear()
    this.#ineffective.clear()
  }

  /** The error for an unknown field that resembles a known one, or for too many unknown fields. */
  complaint(): ErrorObject | undefined {
    let count = 0
    for (const { path, known, unknown } of this.#visits.values()) {
      if (unknown.length === 0) continue
      const names = this.#namesAt(shownPath(path))
      for (const name of unknown) {
        if (names.has(name)) continue
        names.add(name)
        count += 1
        const intended = nearestName(name, known)
        if (intended === undefined && count <= DISTINCT_NAMES_MAX) continue
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
    for (const { object, unknown } of this.#visits.values()) {
      for (const name of unknown) delete object[name]
    }
    const names = new Set(this.#ineffective)
    for (const [path, unknown] of this.#unknown) {
      for (const name of unknown) names.add(shownField(path, name))
    }
    if (names.size > 0) reports.set(body, [...names].slice(0, REPORTED_MAX))
    this.begin()
  }

  #namesAt(path: string): Set<string> {
    const names = this.#unknown.get(path) ?? new Set()
    this.#unknown.set(path, names)
    return names
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
    // A field is known when any schema of the object, such as one alternative, knows it.
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
    .replaceAll(/\/\d+(?=\/|$)/g, '[]')
    .replace(/^\//, '')
    .replaceAll('/', '.')
    .replaceAll('~1', '/')
    .replaceAll('~0', '~')
    .slice(0, NAME_SHOWN_MAX)
    .replace(UNSAFE, '?')
}

function shownField(path: string, name: string): string {
  const shown = shownPath(`/${name}`)
  return (path === '' ? shown : `${path}.${shown}`.replace('.[]', '[]')).slice(0, NAME_SHOWN_MAX)
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
