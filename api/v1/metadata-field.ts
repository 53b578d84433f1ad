import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { mapOf, nullable } from '#shared/schemas.ts'

const PAIRS_MAX = 16
const NAME_LENGTH_MAX = 64
const VALUE_LENGTH_MAX = 512

/** The free-form metadata field of a request. */
export const METADATA_FIELD = Type.Optional(
  nullable(
    mapOf(Type.String({ maxLength: VALUE_LENGTH_MAX }), {
      maxProperties: PAIRS_MAX,
      propertyNames: { maxLength: NAME_LENGTH_MAX },
      description: `Your own data about the object: up to ${PAIRS_MAX} pairs.`,
    }),
  ),
)

/** Refuses text that Postgres does not store: NUL characters and lone surrogates. */
export function checkMetadata(metadata: Readonly<Record<string, string>> | null | undefined): void {
  for (const [name, value] of Object.entries(metadata ?? {})) {
    if (!`${name} ${value}`.includes('\0') && name.isWellFormed() && value.isWellFormed()) continue
    const param = `metadata.${name.toWellFormed()}`
    throw failure.invalidRequest(`Invalid '${param}': it contains an invalid character.`, {
      param,
      code: 'invalid_value',
    })
  }
}
