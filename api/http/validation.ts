import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import addFormatsModule from 'ajv-formats'
import type { FastifyInstance } from 'fastify'

// The package is CommonJS: its function is a property of what an ES module imports.
const addFormats = addFormatsModule.default

/**
 * Validates what clients send. Bodies are taken as they are: a number in quotes is a fault. What stands
 * in a URL or a header is text by nature and is read as the type that its schema wants.
 */
export function registerValidation(app: FastifyInstance): void {
  const strict = createAjv(false)
  const reading = createAjv('array')
  app.setValidatorCompiler(({ schema, httpPart }) =>
    (httpPart === 'body' ? strict : reading).compile(schema as object),
  )
}

/** A check of bodies that come another way than through a route. */
export function compileBodySchema(schema: object): ValidateFunction {
  return createAjv(false).compile(schema)
}

function createAjv(coerceTypes: false | 'array') {
  const ajv = new Ajv2020({
    coerceTypes,
    useDefaults: false,
    removeAdditional: false,
    allErrors: false,
    // `verbose` hands the faulty value to the message; `strict` would refuse OpenAPI's own keywords.
    verbose: true,
    strict: false,
  })
  addFormats(ajv)
  return ajv
}
