import type { FastifyRequest } from 'fastify'
import type { Static, TSchema } from 'typebox'

import { ignoredFieldsOf, reportIgnored } from '#api/http/validation.ts'
import { type SchemaComplaint, validationFailure } from '#api/v1/validation-message.ts'
import { Type } from '#shared/schema-types.ts'

/** A file in the schema of a form. */
export const BINARY = Type.String({ format: 'binary' })

/**
 * The fields of a form as their schema wants them: numbers and truth values are read from text, the
 * latter also as Python writes them. Says the same of a wrong value as the endpoints that take
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
