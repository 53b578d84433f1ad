/**
 * Whether any text within a value contains the word "json". Stops at the first one, and writes no copy
 * of a large request.
 */
export function mentionsJson(value: unknown): boolean {
  if (typeof value === 'string') return /json/i.test(value)
  if (typeof value !== 'object' || value === null) return false
  // An object with the field `json_schema` mentions it as well.
  return Object.entries(value).some(
    ([name, inner]) => mentionsJson(inner) || (!Array.isArray(value) && mentionsJson(name)),
  )
}
