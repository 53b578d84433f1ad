/** The part of a JSON Schema that decides how text is converted. */
interface TextSchema {
  readonly type?: string | readonly string[]
  readonly anyOf?: readonly TextSchema[]
  readonly oneOf?: readonly TextSchema[]
  readonly items?: TextSchema
  readonly properties?: Readonly<Record<string, TextSchema>>
}

// Decimal notation only: `Number` also accepts Infinity, 0x10, blanks and an empty text.
const DECIMAL = /^-?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/i

/**
 * Converts the texts of a URL, of headers or of a form to the types in their schema, in place. A
 * text that does not match its type stays a text, so that the validator reports it.
 */
export function readTexts(schema: object, values: unknown): void {
  if (typeof values !== 'object' || values === null) return
  const fields = values as Record<string, unknown>
  for (const [name, property] of Object.entries((schema as TextSchema).properties ?? {})) {
    if (Object.hasOwn(fields, name)) fields[name] = readAs(property, fields[name])
  }
}

function readAs(schema: TextSchema, value: unknown): unknown {
  const types = typesOf(schema)
  if (types.includes('array')) {
    return [value].flat().map((item) => readAs(schema.items ?? {}, item))
  }
  // Forms have no null: some clients write each field without a value as an empty text.
  if (value === '' && types.includes('null')) return null
  if (typeof value !== 'string' || types.includes('string')) return value
  const isNumeric = types.includes('number') || types.includes('integer')
  if (isNumeric && DECIMAL.test(value)) return Number(value)
  const isTruth = types.includes('boolean') && (value === 'true' || value === 'false')
  return isTruth ? value === 'true' : value
}

function typesOf({ type = [], anyOf = [], oneOf = [] }: TextSchema): readonly string[] {
  return [type, ...[...anyOf, ...oneOf].map(typesOf)].flat()
}
