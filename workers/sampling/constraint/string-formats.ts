const MONTH_DAY =
  '(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|' +
  '02-(?:0[1-9]|1\\d|2[0-8]))'
const DATE = `[12]\\d{3}-${MONTH_DAY}`
const TIME =
  '(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)'
const LABEL = '[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,40}[a-zA-Z0-9])?'
const HOSTNAME = `${LABEL}(?:\\.${LABEL}){0,3}`
const OCTET = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)'

/** Texts of supported formats are shorter, so a bound beyond this has no effect. */
export const FORMAT_LENGTH_MAX = 512

// The pattern of each supported `format`. Every match is valid; some valid spellings are excluded.
const FORMAT_PATTERNS: Readonly<Record<string, string>> = {
  date: `^${DATE}$`,
  time: `^${TIME}$`,
  'date-time': `^${DATE}T${TIME}$`,
  duration: '^P(?:\\d{1,4}W|\\d{1,4}D(?:T\\d{1,4}H)?|T\\d{1,4}[HMS])$',
  email: `^[a-zA-Z0-9_+-]{1,32}(?:\\.[a-zA-Z0-9_+-]{1,32}){0,2}@(?:${LABEL}\\.){1,3}[a-zA-Z]{2,16}$`,
  hostname: `^${HOSTNAME}$`,
  ipv4: `^${OCTET}(?:\\.${OCTET}){3}$`,
  ipv6: '^[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}$',
  uuid: '^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$',
  uri: `^https?://${HOSTNAME}(?:/[a-zA-Z0-9._~-]{0,64}){0,4}$`,
}

// Formats of the JSON Schema specification that are not enforced here.
const REFUSED_FORMATS: readonly unknown[] = [
  ...['idn-email', 'idn-hostname', 'uri-reference', 'iri', 'iri-reference', 'uri-template'],
  ...['json-pointer', 'relative-json-pointer', 'regex'],
]

/** The pattern of a format, or undefined if it is not supported. */
export function findFormat(format: unknown): string | undefined {
  const name = String(format)
  return Object.hasOwn(FORMAT_PATTERNS, name) ? FORMAT_PATTERNS[name] : undefined
}

/** Whether a format is not defined by JSON Schema and thus has no effect. */
export function isAnnotation(format: unknown): boolean {
  if (typeof format !== 'string') return false
  return findFormat(format) === undefined && !REFUSED_FORMATS.includes(format)
}
