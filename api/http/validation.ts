import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js'
import type { FastifyInstance } from 'fastify'

import { readTexts } from './read-text.ts'

// RFC 9562 as PostgreSQL takes it.
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/**
 * Validates client input. Bodies keep their types: a quoted number is an error. Text of URLs and
 * headers is converted to the type of its schema before it is checked, so that bounds apply to the
 * number.
 */
export function registerValidation(app: FastifyInstance): void {
  const ajv = createAjv()
  app.setValidatorCompiler(({ schema, httpPart }) => {
    const validate = compileLater(ajv, schema as object)
    return httpPart === 'body' ? validate : readFirst(validate, schema as object)
  })
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
export function compileBodySchema(schema: object): Validate {
  return compileLater(createAjv(), schema)
}

/** Compiles a schema when it is first needed: all of them would take a quarter of the start. */
function compileLater(ajv: Ajv2020, schema: object): Validate {
  let compiled: ValidateFunction | undefined
  const validate: Validate = (value) => {
    compiled ??= ajv.compile(withSafeIntegers(schema))
    const isValid = compiled(value) === true
    validate.errors = compiled.errors ?? null
    return isValid
  }
  return validate
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

const bounded = new WeakMap<object, object>()

/**
 * The schema with the range of safe integers wherever an integer has no bounds of its own: beyond it
 * two numbers are one, and no column of the database holds them.
 */
function withSafeIntegers(schema: object): object {
  // The validator recognizes a schema that it has compiled by its identity.
  const known = bounded.get(schema) ?? boundIntegers(schema)
  bounded.set(schema, known)
  return known
}

/** Keywords whose values are no schemas. */
const LITERALS = ['enum', 'const', 'default', 'examples', 'required']

function boundIntegers(schema: object): object {
  if (Array.isArray(schema)) return schema.map(boundIfObject)
  const copy = Object.fromEntries(
    Object.entries(schema).map(([key, value]) => [
      key,
      LITERALS.includes(key) ? value : boundIfObject(value),
    ]),
  )
  const types = [copy.type].flat()
  if (!types.includes('integer') || types.includes('number')) return copy
  const hasMaximum = 'maximum' in copy || 'exclusiveMaximum' in copy
  const hasMinimum = 'minimum' in copy || 'exclusiveMinimum' in copy
  return {
    ...copy,
    ...(!hasMaximum && { maximum: Number.MAX_SAFE_INTEGER }),
    ...(!hasMinimum && { minimum: Number.MIN_SAFE_INTEGER }),
  }
}

function boundIfObject(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? boundIntegers(value) : value
}
