import type { FastifyRequest } from 'fastify'
import type { Static, TSchema } from 'typebox'

import { ignoredFieldsOf, reportIgnored } from '#api/http/validation.ts'
import { type SchemaComplaint, validationFailure } from '#api/v1/validation-message.ts'
import { Type } from '#shared/schema-types.ts'

/** A file in the schema of a form. */
export const BINARY = Type.String({ format: 'binary' })

/**
 * Converts the fields of a form to the types in their schema: numbers and booleans are read from
 * text, booleans also in Python's spelling. Errors are the same as those of endpoints that accept
 * JSON.
 */
export function parseFields<Schema extends TSchema>(
  request: FastifyRequest,
  schema: Schema,
  fields: Readonly<Record<string, unknown>>,
): Static<Schema> {
  const value = Object.fromEntries(
    Object.entries(fields).map(([name, text]) => [
      name,
      isTruth(schema, name) && (text === 'True' || text === 'False') ? text.toLowerCase() : text,
    ]),
  )
  const validate = request.compileValidationSchema(
    schema as unknown as Record<string, unknown>,
    'querystring',
  )
  if (validate(value)) {
    reportIgnored(request, ignoredFieldsOf(value))
    return value as Static<Schema>
  }
  const complaints = (validate as unknown as { errors: readonly SchemaComplaint[] }).errors
  throw validationFailure(complaints, { value, schema })
}

function isTruth(schema: TSchema, name: string): boolean {
  const { properties = {} } = schema as { properties?: Record<string, { type?: unknown }> }
  return [properties[name]?.type].flat().includes('boolean')
}
