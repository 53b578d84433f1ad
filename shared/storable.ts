/** Whether Postgres can store a text: it has no NUL character and no half of a surrogate pair. */
export function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed()
}

/** A text without its NUL characters, and with U+FFFD for each half of a surrogate pair. */
export function toStorable(text: string): string {
  return text.toWellFormed().replaceAll('\0', '')
}

/**
 * Why Postgres cannot store a JSON value, as the end of a sentence that names the value; undefined
 * if it can. Numbers such as 1e400 would be stored as null. A field `__proto__` is a fault too,
 * because it could reach the prototype of a copy.
 */
export function storageFault(value: unknown, levelsMax = Infinity): string | undefined {
  if (typeof value === 'string' && !isStorable(value))
    return 'contains a character that cannot be stored: U+0000 or half of a surrogate pair'
  if (typeof value === 'number' && !Number.isFinite(value))
    return 'contains a number that is too large'
  if (typeof value !== 'object' || value === null) return undefined
  if (levelsMax === 0) return 'has too many levels'
  for (const [name, inner] of Object.entries(value)) {
    if (name === '__proto__') return 'contains a field named __proto__'
    const fault = storageFault(name) ?? storageFault(inner, levelsMax - 1)
    if (fault !== undefined) return fault
  }
  return undefined
}
