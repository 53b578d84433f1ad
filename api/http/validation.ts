import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js'
import type { FastifyInstance } from 'fastify'

// RFC 9562 as PostgreSQL takes it.
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/**
 * Validates what clients send. Bodies are taken as they are: a number in quotes is a fault. What stands
 * in a URL or a header is text by nature and is read as the type that its schema wants.
 */
export function registerValidation(app: FastifyInstance): void {
  const strict = createAjv(false)
  const reading = createAjv('array')
  app.setValidatorCompiler(({ schema, httpPart }) =>
    compileLater(httpPart === 'body' ? strict : reading, schema as object),
  )
}

/** Whether a value is as its schema says; `errors` tells what is wrong with the last one that is not. */
export interface Validate {
  (value: unknown): boolean
  errors?: ErrorObject[] | null
}

/** A check of bodies that come another way than through a route. */
export function compileBodySchema(schema: object): Validate {
  return compileLater(createAjv(false), schema)
}

/** Compiles a schema when it is first needed: all of them would take a quarter of the start. */
function compileLater(ajv: Ajv2020, schema: object): Validate {
  let compiled: ValidateFunction | undefined
  const validate: Validate = (value) => {
    compiled ??= ajv.compile(schema)
    const isValid = compiled(value) === true
    validate.errors = compiled.errors ?? null
    return isValid
  }
  return validate
}

function createAjv(coerceTypes: false | 'array'): Ajv2020 {
  const ajv = new Ajv2020({
    coerceTypes,
    useDefaults: false,
    removeAdditional: false,
    allErrors: false,
    // `verbose` hands the faulty value to the message; `strict` would refuse OpenAPI's own keywords.
    verbose: true,
    strict: false,
    // What is too large to be a number is none: it would not survive the queue.
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
