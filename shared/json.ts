import { failure, type ServiceError } from './errors.ts'

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

/** Asserts that a value whose source guarantees it is present. Throws otherwise. */
export function defined<T>(value: T | null | undefined): T {
  if (value === undefined || value === null) throw new Error('a value is missing')
  return value
}

/** Limits of the parts of a JSON text; its size is bounded elsewhere. */
interface JsonLimits {
  readonly depth: number
  readonly members: number
  readonly values: number
  readonly textBytes: number
  /**
   * Whether numbers beyond the range of a double are refused, because they would be read as
   * Infinity.
   */
  readonly requiresFinite: boolean
}

/** The limits of a JSON body. */
export const JSON_LIMITS = {
  /** How deep arrays and objects may be nested. */
  depth: 200,
  /** Members of all objects together. */
  members: 50_000,
  /** Items and members of all arrays and objects: a request may embed 300,000 token ids. */
  values: 400_000,
  /** Bytes of one text: about a million tokens. */
  textBytes: 4 * 1024 * 1024,
  requiresFinite: true,
} as const satisfies JsonLimits

/**
 * Limits of JSON text inside a string, such as the arguments of a call, which templates parse.
 * Large numbers are accepted: a model may have written them, and its client sends them back.
 */
export const JSON_TEXT_LIMITS = {
  depth: 64,
  members: 10_000,
  values: 20_000,
  textBytes: 1024 * 1024,
  requiresFinite: false,
} as const satisfies JsonLimits

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const COLON = 0x3a
const LETTER_E = 0x65
const LOWER_CASE = 0x20
const OPENER = 1
const CLOSER = 2
const SEPARATOR = 3
const TEXT = 4
/** The role of each byte outside strings. */
const ROLES = new Uint8Array(256)
for (const opener of '[{') ROLES[opener.charCodeAt(0)] = OPENER
for (const closer of ']}') ROLES[closer.charCodeAt(0)] = CLOSER
for (const separator of [COMMA, COLON]) ROLES[separator] = SEPARATOR
ROLES[QUOTE] = TEXT
const NAME_SHOWN_MAX = 64
/** Numbers of at most this length without an exponent are finite. */
const FINITE_CHARACTERS = 300

/** The start and the end of a range. */
type Range = readonly [number, number]

/**
 * The refusal of a JSON text with too many parts, with the name of the parameter; undefined if the
 * text is within the limits.
 */
export function judgeJson(
  bytes: Buffer,
  limits: JsonLimits = JSON_LIMITS,
): ServiceError | undefined {
  const { length } = bytes
  const {
    depth: depthMax,
    members: membersMax,
    values: valuesMax,
    textBytes,
    requiresFinite,
  } = limits
  let depth = 0
  let members = 0
  let values = 0
  /** The range of the last text, and that of the name of the current parameter. */
  let text: Range = [0, 0]
  let name = text
  /** The start of the current number, which the next separator ends. */
  let number = 0
  const refuse = (what: string, limit: number): ServiceError => tooMuch(bytes, name, what, limit)
  for (let at = 0; at < length; at += 1) {
    const byte = bytes[at] as number
    const role = ROLES[byte]
    if (role === 0) continue
    if (requiresFinite && role !== TEXT && isInfinite(bytes, number, at))
      return notFinite(bytes, name)
    if (role === TEXT) {
      const end = endOfText(bytes, at)
      if (end - at > textBytes) return tooLong(bytes, name, textBytes)
      text = [at + 1, end]
      at = end
    } else if (role === OPENER) {
      depth += 1
      values += 1
      if (depth > depthMax) return refuse('levels of nesting', depthMax)
    } else if (role === CLOSER) {
      depth -= 1
    } else if (byte === COLON) {
      members += 1
      if (depth === 1) name = text
      if (members > membersMax) return refuse('members', membersMax)
    } else {
      values += 1
      if (values > valuesMax) return refuse('values', valuesMax)
    }
    number = at + 1
  }
  return requiresFinite && isInfinite(bytes, number, length) ? notFinite(bytes, name) : undefined
}

/** Whether this is a number that is read as Infinity. */
function isInfinite(bytes: Buffer, start: number, end: number): boolean {
  const isShort = end - start < FINITE_CHARACTERS
  // The shortest infinite number is `1e309`; most values are short and have no exponent.
  if (end - start < 5 || (isShort && !hasExponent(bytes, start, end))) return false
  return Math.abs(Number(bytes.toString('latin1', start, end))) === Number.POSITIVE_INFINITY
}

function hasExponent(bytes: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) {
    if (((bytes[at] as number) | LOWER_CASE) === LETTER_E) return true
  }
  return false
}

/** The position of the closing quote of the text that begins with the quote at `start`. */
function endOfText(bytes: Buffer, start: number): number {
  const end = bytes.indexOf(QUOTE, start + 1)
  if (end === -1) return bytes.length
  if (bytes[end - 1] !== BACKSLASH) return end
  // One loop, because a search for each of millions of escaped quotes would be slow.
  for (let at = start + 1; at < bytes.length; at += 1) {
    const byte = bytes[at]
    if (byte === QUOTE) return at
    if (byte === BACKSLASH) at += 1
  }
  return bytes.length
}

function tooMuch(bytes: Buffer, name: Range, what: string, limit: number): ServiceError {
  return failure.invalidRequest(`The JSON is too complex: at most ${limit} ${what} are allowed.`, {
    code: 'json_too_complex',
    ...paramOf(bytes, name),
  })
}

function tooLong(bytes: Buffer, name: Range, limit: number): ServiceError {
  return failure.invalidRequest(`String too long: at most ${limit} bytes are allowed.`, {
    code: 'string_above_max_length',
    ...paramOf(bytes, name),
  })
}

function notFinite(bytes: Buffer, name: Range): ServiceError {
  const { param } = paramOf(bytes, name)
  const subject = param === undefined ? 'A number is too large' : `Invalid '${param}'`
  return failure.invalidRequest(`${subject}: numbers must be finite.`, {
    code: 'number_above_max_value',
    ...(param !== undefined && { param }),
  })
}

function paramOf(bytes: Buffer, [start, end]: Range): { param?: string } {
  return start === 0 ? {} : { param: bytes.toString('utf8', start, end).slice(0, NAME_SHOWN_MAX) }
}
