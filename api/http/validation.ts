import { isUtf8 } from 'node:buffer'

import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js'
import type { FastifyInstance, FastifySchema, FastifySchemaCompiler } from 'fastify'

import { failure, type ServiceError } from '#shared/errors.ts'
import { judgeJson } from '#shared/judge-json.ts'

import { IgnoredFields, KNOWN_FIELDS } from './ignored-fields.ts'
import { readTexts } from './read-text.ts'

// RFC 9562 as PostgreSQL takes it.
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

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
  const refusing = createChecker('refuse')
  const checker = unknownFields === 'refuse' ? refusing : createChecker('ignore')
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
interface Validate {
  (value: unknown): boolean
  errors?: ErrorObject[] | null
}

/** A check of bodies that come another way than through a route. */
export function compileBodySchema(
  schema: object,
  unknownFields: UnknownFields = 'refuse',
): Validate {
  return compileLater(createChecker(unknownFields), schema)
}

/** Compiles a schema when it is first needed: all of them would take a quarter of the start. */
function compileLater({ ajv, fields, prepare }: Checker, schema: object): Validate {
  let compiled: ValidateFunction | undefined
  const validate: Validate = (value) => {
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

/** A validator, the fields that it found without effect, and the preparation of its schemas. */
interface Checker {
  readonly ajv: Ajv2020
  readonly fields: IgnoredFields
  prepare(schema: object): object
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

function createAjv(): Ajv2020 {
  const ajv = new Ajv2020({
    coerceTypes: false,
    useDefaults: false,
    removeAdditional: false,
    allErrors: false,
    // `verbose` hands the faulty value to the message; `strict` would refuse OpenAPI's own keywords.
    verbose: true,
    strict: false,
    // Numbers that overflow to Infinity are refused: the queue's JSON cannot carry them.
    strictNumbers: true,
    // The first request of a route waits for its check: polishing that takes as long as writing it.
    code: { optimize: false },
    // They are all ours, and the tests look at them.
    validateSchema: false,
  })
  ajv.addFormat('uuid', UUID)
  // These only describe: files come in other ways than as a value of the body.
  for (const format of ['binary', 'uri']) ajv.addFormat(format, true)
  return ajv
}

/** Keywords whose values are no schemas. */
const LITERALS = ['enum', 'const', 'default', 'examples', 'required']

/**
 * The schema with the range of safe integers wherever an integer has no bounds of its own: beyond it
 * two numbers are one, and no column of the database holds them. Where unknown fields are ignored,
 * closed objects list their known fields instead.
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
 * Reads JSON, by the name of `application/json` if there is no other. A body is judged before it is parsed: a million small objects take far
 * more memory, and time of the event loop, than the bytes that they are written in.
 */
export function registerJsonBody(app: FastifyInstance, types = ['application/json']): void {
  const parse = app.getDefaultJsonParser('error', 'error')
  app.removeContentTypeParser(types)
  app.addContentTypeParser(types, { parseAs: 'buffer' }, (request, body, done) => {
    // Older clients name the type also where a route has no body and they send none.
    const hasBody = request.routeOptions.schema?.body !== undefined
    if (body.length === 0 && !hasBody) return done(null, undefined)
    const fault = judgeJson(body as Buffer)
    if (fault !== undefined) return done(fault)
    // Decoding would put other characters where the client's bytes are none.
    if (!isUtf8(body as Buffer)) return done(notUtf8())
    // The parser ends by calling back; it returns nothing of its own.
    void parse(request, (body as Buffer).toString('utf8'), done)
  })
}

function notUtf8(): ServiceError {
  return failure.invalidRequest('The JSON body is not valid UTF-8.', { code: 'invalid_utf8' })
}
