/** Whether a value is a plain JSON object: not a list and not null. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Parses a JSON object; undefined for any other text or value. */
export function parseRecord(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** A member of an object or array of unknown shape. */
export function field(value: unknown, key: string | number): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined
  return (value as Record<string | number, unknown>)[key]
}

/** The text at a path; numbers become text, everything else is empty. */
export function textAt(value: unknown, ...path: readonly (string | number)[]): string {
  const found = path.reduce<unknown>(field, value)
  if (typeof found === 'string') return found
  return typeof found === 'number' && Number.isFinite(found) ? String(found) : ''
}

/** Whether a path holds true; some providers write booleans as text. */
export function isTrueAt(value: unknown, ...path: readonly (string | number)[]): boolean {
  const found = path.reduce<unknown>(field, value)
  return found === true || found === 'true'
}

/** The list at a path; empty when there is none. */
export function listAt(value: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const found = path.reduce<unknown>(field, value)
  return Array.isArray(found) ? found : []
}

/** A value that is there by what is known of its source; throws where it is not. */
export function defined<T>(value: T | null | undefined): T {
  if (value === undefined || value === null) throw new Error('a value is missing')
  return value
}
