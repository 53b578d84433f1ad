import { createHash } from 'node:crypto'

import { failure, type ServiceError } from '#shared/errors.ts'
import { isRecord } from '#shared/json.ts'
import { storageFault } from '#shared/storable.ts'

/** An activity in the vocabulary of Activity Streams 2.0, validated and completed. */
export interface Activity {
  /** Given by the client; undefined when the server generates one. */
  readonly id: string | undefined
  readonly type: string
  readonly actorId: string | undefined
  readonly objectId: string | undefined
  readonly publishedMs: number
  /** The client's content. */
  readonly sent: Readonly<Record<string, unknown>>
  /** The stored content: the client's, with actor and time filled in. */
  readonly content: Readonly<Record<string, unknown>>
}

const ID_LENGTH_MAX = 200
const TYPE_LENGTH_MAX = 100
const SUMMARY_LENGTH_MAX = 2000
const CONTENT_BYTES_MAX = 64 * 1024
const LEVELS_MAX = 32
/** Activities of one request. */
export const BATCH_MAX = 1000
/** Fields that name another object. */
export const REFERENCES = ['actor', 'object', 'target', 'origin', 'result', 'instrument'] as const
const RFC_3339 =
  /^(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/i
// The years 1 to 9999: the range of RFC 3339 timestamps.
const MOMENT_MS_MIN = Date.parse('0001-01-01T00:00:00Z')
const MOMENT_MS_MAX = Date.parse('9999-12-31T23:59:59.999Z')

/** The generator of the platform's own activities, which clients must not claim. */
export const OWN_GENERATOR = 'millrace'

/** Begins the ids that the platform makes. */
export const OWN_ID_PREFIX = 'act_'

/** The activities of a body and the field that contained them; undefined for a single one. */
interface ParsedActivities {
  readonly batchName: string | undefined
  readonly activities: readonly Activity[]
}

/**
 * The activities of a request body: a single one, `{"activities": […]}`, or a collection of
 * Activity Streams. Throws `invalidRequest` naming the field, with its index in a batch.
 */
export function parseActivities(
  body: unknown,
  context: { readonly actor: string; readonly nowMs: number },
): ParsedActivities {
  if (!isRecord(body)) throw invalid('', 'The body must be a JSON object.')
  const list = batchOf(body)
  if (list === undefined) {
    return { batchName: undefined, activities: [parseActivity(body, '', context)] }
  }
  const { name, items } = list
  if (!Array.isArray(items))
    throw invalid(
      name,
      `Invalid type for '${name}': expected an array of activities.`,
      'invalid_type',
    )
  if (items.length === 0) throw invalid(name, `Invalid '${name}': empty array.`, 'empty_array')
  if (items.length > BATCH_MAX) {
    throw invalid(
      name,
      `Invalid '${name}': array too long. Expected at most ${BATCH_MAX} activities, but got ${items.length}.`,
      'array_above_max_length',
    )
  }
  const activities = items.map((item: unknown, index) =>
    parseActivity(item, `${name}[${index}]`, context),
  )
  refuseRepeatedIds(activities, name)
  return { batchName: name, activities }
}

/** Checks one activity and fills in the fields that the client left out. */
function parseActivity(
  value: unknown,
  path: string,
  context: { readonly actor: string; readonly nowMs: number },
): Activity {
  const at = (field: string) => (path === '' ? field : `${path}.${field}`)
  if (!isRecord(value))
    throw invalid(path, `Invalid type for '${path}': expected an object.`, 'invalid_type')
  const { type, generator } = value
  // Serializers write null for a field without a value.
  const given = (field: string) => value[field] ?? undefined
  const [id, published, summary] = ['id', 'published', 'summary'].map(given)
  if (type === undefined)
    throw invalid(
      at('type'),
      `Missing required parameter: '${at('type')}'.`,
      'missing_required_parameter',
    )
  requireText(type, at('type'), TYPE_LENGTH_MAX)
  if (id !== undefined) requireId(id, at('id'))
  if (summary !== undefined) requireText(summary, at('summary'), SUMMARY_LENGTH_MAX, 0)
  for (const field of REFERENCES) {
    if (given(field) !== undefined) requireReference(value[field], at(field))
  }
  if (namesOwnGenerator(generator)) {
    throw invalid(at('generator'), `'${at('generator')}' may not be "${OWN_GENERATOR}".`)
  }
  const publishedMs =
    published === undefined ? context.nowMs : parseMoment(published, at('published'))
  const content = {
    ...value,
    actor: value.actor ?? context.actor,
    published: published ?? new Date(context.nowMs).toISOString(),
  }
  requireBounded(content, path)
  return {
    id: id as string | undefined,
    type: type as string,
    actorId: referenceId(content.actor),
    objectId: referenceId(value.object),
    publishedMs,
    sent: value,
    content,
  }
}

/** The SHA-256 of the content, independent of the order of its keys. */
export function digestOf(sent: Activity['sent']): Buffer {
  return createHash('sha256').update(canonical(sent)).digest()
}

/** The id of a reference: the string itself, or the object's `id`, or its `name`. */
function referenceId(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  if (!isRecord(value)) return undefined
  const id = value.id ?? value.name
  return typeof id === 'string' ? id : undefined
}

// By id or by name, alone or in a list: consumers of the vocabulary treat all of these alike.
function namesOwnGenerator(generator: unknown): boolean {
  if (Array.isArray(generator)) return generator.some(namesOwnGenerator)
  if (!isRecord(generator)) return generator === OWN_GENERATOR
  return [generator.id, generator.name].some(namesOwnGenerator)
}

/** Milliseconds of an RFC 3339 timestamp. Throws `invalidRequest` naming the field. */
export function parseMoment(value: unknown, path: string): number {
  const parts = typeof value === 'string' ? RFC_3339.exec(value) : null
  const ms = parts !== null && isDay(parts) ? Date.parse(parts[0]) : Number.NaN
  if (ms >= MOMENT_MS_MIN && ms <= MOMENT_MS_MAX) return ms
  throw invalid(
    path,
    `Invalid '${path}': expected an RFC 3339 timestamp such as 2026-01-31T12:00:00Z.`,
  )
}

/** Whether the month has such a day: `Date` rolls over into the next month. */
function isDay([, year, month, day]: readonly string[]): boolean {
  const date = new Date(Date.UTC(2000, Number(month) - 1, Number(day)))
  date.setUTCFullYear(Number(year), Number(month) - 1, Number(day))
  return date.getUTCMonth() === Number(month) - 1 && date.getUTCDate() === Number(day)
}

function batchOf(body: Record<string, unknown>): { name: string; items: unknown } | undefined {
  if ('activities' in body) return { name: 'activities', items: body.activities }
  const isOrdered = body.type === 'OrderedCollection' || body.type === 'OrderedCollectionPage'
  if (isOrdered) return { name: 'orderedItems', items: body.orderedItems }
  const isCollection = body.type === 'Collection' || body.type === 'CollectionPage'
  return isCollection ? { name: 'items', items: body.items } : undefined
}

function refuseRepeatedIds(activities: readonly Activity[], name: string): void {
  const seen = new Set<string>()
  for (const [index, { id }] of activities.entries()) {
    if (id === undefined) continue
    if (seen.has(id))
      throw invalid(
        `${name}[${index}].id`,
        `'${name}[${index}].id' repeats an id of the same batch.`,
      )
    seen.add(id)
  }
}

function requireText(value: unknown, path: string, lengthMax: number, lengthMin = 1): void {
  if (typeof value !== 'string')
    throw invalid(path, `Invalid type for '${path}': expected a string.`, 'invalid_type')
  if (value.length < lengthMin)
    throw invalid(path, `Invalid '${path}': empty string.`, 'empty_string')
  if (value.length > lengthMax) {
    throw invalid(
      path,
      `Invalid '${path}': string too long. Expected a string with maximum length ${lengthMax}, but got one with length ${value.length}.`,
      'string_above_max_length',
    )
  }
  const fault = storageFault(value)
  if (fault !== undefined) throw invalid(path, `'${path}' ${fault}.`)
}

function requireId(value: unknown, path: string): void {
  requireText(value, path, ID_LENGTH_MAX)
  // Clients normalize `.` and `..` away in URLs, escaped or not.
  if (value === '.' || value === '..')
    throw invalid(path, `Invalid '${path}': '.' and '..' cannot stand in an address.`)
  // The platform derives its ids from those of jobs, which clients can know in advance.
  if ((value as string).startsWith(OWN_ID_PREFIX))
    throw invalid(path, `'${path}' may not begin with "${OWN_ID_PREFIX}".`)
}

function requireReference(value: unknown, path: string): void {
  const id = referenceId(value)
  // An object of the vocabulary may consist of its content, such as a note.
  if (id === undefined && isRecord(value) && value.type !== undefined) {
    requireText(value.type, `${path}.type`, TYPE_LENGTH_MAX)
    return
  }
  if (id === undefined || value === '') {
    throw invalid(
      path,
      `Invalid '${path}': expected a string, or an object with an id, a name or a type.`,
    )
  }
  requireText(id, path, SUMMARY_LENGTH_MAX)
}

function requireBounded(content: object, path: string): void {
  const place = path === '' ? 'The activity' : `'${path}'`
  const fault = storageFault(content, LEVELS_MAX)
  if (fault !== undefined) throw invalid(path, `${place} ${fault}.`)
  if (Buffer.byteLength(JSON.stringify(content)) > CONTENT_BYTES_MAX)
    throw invalid(path, `${place} is larger than ${CONTENT_BYTES_MAX} bytes.`)
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (!isRecord(value)) return JSON.stringify(value)
  const entries = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`)
  return `{${entries.join(',')}}`
}

function invalid(path: string, message: string, code = 'invalid_value'): ServiceError {
  return failure.invalidRequest(message, { code, ...(path !== '' && { param: path }) })
}
