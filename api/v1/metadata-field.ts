import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { mapOf, nullable } from '#shared/schemas.ts'
import { isStorable, toStorable } from '#shared/storable.ts'

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

/** Refuses text that Postgres cannot store. */
export function checkMetadata(metadata: Readonly<Record<string, string>> | null | undefined): void {
  for (const [name, value] of Object.entries(metadata ?? {})) {
    if (isStorable(name) && isStorable(value)) continue
    const param = `metadata.${toStorable(name)}`
    throw failure.invalidRequest(`Invalid '${param}': it contains an invalid character.`, {
      param,
      code: 'invalid_value',
    })
  }
}
