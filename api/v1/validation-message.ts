import { nearestName } from '#api/http/near-names.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

/** One error of the schema validator. */
export interface SchemaComplaint {
  readonly keyword: string
  /** JSON pointer to the value at fault. */
  readonly instancePath: string
  /** JSON pointer into the schema, ending with the keyword. */
  readonly schemaPath: string
  readonly params: Readonly<Record<string, unknown>>
}

interface Complaint extends SchemaComplaint {
  readonly path: string
  readonly value: unknown
  readonly isInteger: boolean
  /** The alternatives to other values, from the `$comment` of the schema. */
  readonly comment: string
}

/** The message for a body that is not a JSON object. */
const MALFORMED_JSON =
  "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The API expects a JSON payload, but what was sent was not valid JSON.)"

/**
 * Converts the validator's errors about a request into one failure that names the parameter as the
 * client wrote it, the expected value and the received one.
 */
export function validationFailure(
  everything: readonly SchemaComplaint[],
  request: { readonly value: unknown; readonly schema: unknown },
): ServiceError {
  // For an `if`, the error of its branch is the useful one.
  const complaints = everything.filter(({ keyword }) => keyword !== 'if')
  const last = complaints.at(-1)
  if (last === undefined) return failure.invalidRequest('The request is not valid.')
  if (last.instancePath === '' && last.keyword === 'type') {
    return failure.invalidRequest(MALFORMED_JSON)
  }
  if (last.keyword === 'propertyNames') return invalidKey(last, request.value)
  const chosen = last.keyword === 'anyOf' ? mostSpecific(complaints) : [last]
  const first = chosen[0] ?? last
  const comment = propertyOf(valueAt(request.schema, parentOf(first.schemaPath)), '$comment')
  const complaint: Complaint = {
    ...first,
    params:
      chosen.length > 1
        ? { type: chosen.flatMap(typesOf) }
        : withIntended(first, valueAt(request.schema, parentOf(first.schemaPath))),
    path: readablePath(first.instancePath, request.value),
    value: valueAt(request.value, first.instancePath),
    comment: typeof comment === 'string' ? ` ${comment}` : '',
    isInteger: isIntegerSchema(valueAt(request.schema, parentOf(first.schemaPath))),
  }
  const rule = RULES[complaint.keyword] ?? invalid
  return rule(complaint)
}

const RULES: Readonly<Record<string, (complaint: Complaint) => ServiceError>> = {
  required: ({ path, params }) => {
    const param = joinPath(path, String(params.missingProperty))
    return fail('missing_required_parameter', param, `Missing required parameter: '${param}'.`)
  },
  additionalProperties: ({ path, params }) => {
    const param = joinPath(path, String(params.additionalProperty))
    const hint =
      params.intended === undefined
        ? ''
        : ` Did you mean '${joinPath(path, String(params.intended))}'?`
    return fail('unknown_parameter', param, `Unknown parameter: '${param}'.${hint}`)
  },
  type: wrongType,
  enum: ({ path, value, params, comment }) =>
    fail(
      'invalid_value',
      path,
      `Invalid value: ${quote(value)}. Supported values are: ${listOf(
        asArray(params.allowedValues)
          .filter((allowed) => allowed !== null)
          .map(quote),
        'and',
      )}.${comment}`,
    ),
  const: ({ path, value, params }) =>
    fail(
      'invalid_value',
      path,
      `Invalid value: ${quote(value)}. Value must be ${quote(params.allowedValue)}.`,
    ),
  maximum: (complaint) => outOfRange(complaint, 'above maximum', '<='),
  exclusiveMaximum: (complaint) => outOfRange(complaint, 'above maximum', '<'),
  minimum: (complaint) => outOfRange(complaint, 'below minimum', '>='),
  exclusiveMinimum: (complaint) => outOfRange(complaint, 'below minimum', '>'),
  maxLength: ({ path, value, params }) =>
    fail(
      'string_above_max_length',
      path,
      `Invalid '${path}': string too long. Expected a string with maximum length ${params.limit}, but got a string with length ${String(value).length} instead.`,
    ),
  minLength: ({ path, params }) =>
    fail(
      'empty_string',
      path,
      `Invalid '${path}': empty string. Expected a string with minimum length ${params.limit}, but got an empty string instead.`,
    ),
  maxItems: ({ path, value, params }) =>
    fail(
      'array_above_max_length',
      path,
      `Invalid '${path}': array too long. Expected an array with maximum length ${params.limit}, but got an array with length ${asArray(value).length} instead.`,
    ),
  minItems: ({ path, params }) =>
    fail(
      'empty_array',
      path,
      `Invalid '${path}': empty array. Expected an array with minimum length ${params.limit}, but got an empty array instead.`,
    ),
  maxProperties: ({ path, value, params }) =>
    fail(
      'object_above_max_properties',
      path,
      `Invalid '${path}': too many properties. Expected an object with at most ${params.limit} properties, but got an object with ${Object.keys(Object(value)).length} properties instead.`,
    ),
  pattern: ({ path, params }) =>
    fail(
      'invalid_value',
      path,
      `Invalid '${path}': string does not match pattern. Expected a string that matches the pattern '${params.pattern}'.`,
    ),
}

/** For an unknown field, also the known field that it resembles. */
function withIntended({ keyword, params }: SchemaComplaint, schema: unknown): Complaint['params'] {
  if (keyword !== 'additionalProperties' || params.intended !== undefined) return params
  const known = Object.keys(Object(propertyOf(schema, 'properties')))
  const intended = nearestName(String(params.additionalProperty), known)
  return intended === undefined ? params : { ...params, intended }
}

function invalid({ path }: Complaint): ServiceError {
  return fail('invalid_value', path, `Invalid value for '${path}'.`)
}

function wrongType(complaint: Complaint): ServiceError {
  const { path, value } = complaint
  const found = typeNameOf(value)
  // After alternatives were merged, the received type may be valid for one of them elsewhere.
  const types = [...new Set(typesOf(complaint))].filter(
    (type) => type !== 'null' && TYPE_NAMES[type] !== found,
  )
  if (types.length === 0) {
    return fail(
      'unsupported_parameter',
      path,
      `Unsupported parameter: '${path}' is not supported by this endpoint.`,
    )
  }
  const names = types.map((type) => TYPE_NAMES[type] ?? type)
  const expected = names.length === 1 ? names[0] : `one of ${listOf(names, 'or')}`
  return fail(
    'invalid_type',
    path,
    `Invalid type for '${path}': expected ${expected}, but got ${found} instead.`,
  )
}

function outOfRange(complaint: Complaint, how: string, comparison: string): ServiceError {
  const { path, value, params, isInteger } = complaint
  const number = isInteger ? 'integer' : 'decimal'
  const shown = !isInteger && Number.isInteger(value) ? Number(value).toFixed(1) : String(value)
  return fail(
    `${number}_${how.replace(' ', '_').replace('maximum', 'max').replace('minimum', 'min')}_value`,
    path,
    `Invalid '${path}': ${number} ${how} value. Expected a value ${comparison} ${params.limit}, but got ${shown} instead.`,
  )
}

function invalidKey(complaint: SchemaComplaint, root: unknown): ServiceError {
  const path = readablePath(complaint.instancePath, root)
  const key = String(complaint.params.propertyName).slice(0, KEY_SHOWN_MAX)
  return fail('invalid_value', path, `Invalid key in '${path}': '${key}' is not allowed here.`)
}

function fail(code: string, param: string, message: string): ServiceError {
  return failure.invalidRequest(message, { code, param })
}

/**
 * Selects among the errors of several alternatives those about the deepest value: the client most
 * likely meant the alternative that matched furthest. An error about something other than the type
 * is preferred; type errors are merged into one list of types.
 */
function mostSpecific(complaints: readonly SchemaComplaint[]): readonly SchemaComplaint[] {
  const branches = complaints.filter(({ keyword }) => keyword !== 'anyOf')
  const depths = branches.map(({ instancePath }) => instancePath.split('/').length)
  // Long lists of alternatives produce more errors than a call takes arguments.
  const depth = depths.reduce((deepest, each) => Math.max(deepest, each), 0)
  const deepest = branches.filter((_, index) => depths[index] === depth)
  const wrongTypes = new Set(
    deepest.flatMap((each) => (each.keyword === 'type' ? [parentOf(each.schemaPath)] : [])),
  )
  const others = deepest.filter(({ keyword }) => keyword !== 'type')
  // An alternative of another type was not meant, such as `auto` beside an object.
  const decisive =
    others.find(({ schemaPath }) => !wrongTypes.has(parentOf(schemaPath))) ?? others[0]
  return decisive === undefined ? deepest : [decisive]
}

function typesOf(complaint: SchemaComplaint): string[] {
  return asArray(complaint.params.type).map(String)
}

const TYPE_NAMES: Readonly<Record<string, string>> = {
  number: 'a decimal',
  integer: 'an integer',
  string: 'a string',
  boolean: 'a boolean',
  array: 'an array',
  object: 'an object',
}

function typeNameOf(value: unknown): string {
  if (value === null || value === undefined) return 'null'
  if (Array.isArray(value)) return 'an array'
  if (value === Infinity || value === -Infinity) return 'a number that is too large'
  if (typeof value === 'number') return Number.isInteger(value) ? 'an integer' : 'a decimal'
  return TYPE_NAMES[typeof value] ?? typeof value
}

// Truncated, so that a hostile value is not echoed at full length.
const VALUE_SHOWN_MAX = 100
const KEY_SHOWN_MAX = 50

function quote(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return `'${text.length > VALUE_SHOWN_MAX ? `${text.slice(0, VALUE_SHOWN_MAX)}…` : text}'`
}

function listOf(names: readonly string[], word: string): string {
  if (names.length < 2) return names.join('')
  const comma = names.length > 2 ? ',' : ''
  return `${names.slice(0, -1).join(', ')}${comma} ${word} ${names.at(-1)}`
}

function asArray(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [value]
}

/** `/messages/0/role` as `messages[0].role`, where `messages` is a list. */
function readablePath(pointer: string, root: unknown): string {
  let path = ''
  let value = root
  for (const segment of segmentsOf(pointer)) {
    path = Array.isArray(value) ? `${path}[${segment}]` : joinPath(path, segment)
    value = propertyOf(value, segment)
  }
  return path
}

function joinPath(path: string, name: string): string {
  const shown = name.slice(0, VALUE_SHOWN_MAX)
  return path === '' ? shown : `${path}.${shown}`
}

function valueAt(root: unknown, pointer: string): unknown {
  return segmentsOf(pointer.replace(/^#/, '')).reduce(propertyOf, root)
}

function propertyOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined
  return (value as Record<string, unknown>)[name]
}

function segmentsOf(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((segment) => segment.replaceAll('~1', '/').replaceAll('~0', '~'))
}

function parentOf(pointer: string): string {
  return pointer.slice(0, pointer.lastIndexOf('/'))
}

function isIntegerSchema(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null || !('type' in schema)) return false
  return asArray(schema.type).includes('integer')
}
