import { createRequire } from 'node:module'

import type { Ajv2020, ErrorObject } from 'ajv/dist/2020.js'

// Loaded with the first request that is validated, because Ajv has a hundred modules.
const require = createRequire(import.meta.url)

// A UUID as in RFC 9562 and PostgreSQL.
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** The validator of requests, on every surface. */
export function createAjv(): Ajv2020 {
  const { Ajv2020: Ajv } = require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js')
  const ajv = new Ajv({
    coerceTypes: false,
    useDefaults: false,
    removeAdditional: false,
    allErrors: false,
    // `verbose` passes the faulty value to the message; `strict` would refuse OpenAPI's keywords.
    verbose: true,
    strict: false,
    // Numbers that overflow to Infinity are refused, because the queue's JSON cannot hold them.
    strictNumbers: true,
    // The first request of a route waits for the compilation, which would take twice as long with
    // optimization.
    code: { optimize: false },
    // The schemas are part of this code and covered by tests.
    validateSchema: false,
  })
  ajv.addFormat('uuid', UUID)
  // Annotations only: files are not values of the body, and routes parse times themselves.
  for (const format of ['binary', 'date-time', 'uri']) ajv.addFormat(format, true)
  return ajv
}

/** The mismatch of the value at `instancePath`, such as `must be string`. */
export function mismatchOf({ keyword, message, data, parentSchema }: ErrorObject): string {
  if (keyword === 'required') {
    const { required = [] } = parentSchema as { readonly required?: readonly string[] }
    const missing = required.filter((name) => !Object.hasOwn(data as object, name))
    return `must have required properties ${missing.join(', ')}`
  }
  return message?.replace('NOT', 'not') ?? 'is not valid'
}
