import type { TOptional, TProperties, TUnknown, TUnsafe } from 'typebox'

import { IGNORED_EXCEPT } from '#api/http/validation.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable, ofType } from '#shared/schemas.ts'

// JSON Schema of request fields that may be left out. `null` means the default everywhere.

/** The `model` field of routes whose path names no model. */
const MODEL = Type.String({ minLength: 1, description: 'The id of a model.' })
/** The `model` field of routes whose path names the model. */
export const IGNORED_MODEL = optionalString({ description: 'Ignored: the path names the model.' })

/** The body of a route, and that of its older path, which names the model. */
export function modelBodies<Fields extends TProperties>(fields: Fields) {
  const options = { additionalProperties: false }
  return {
    body: Type.Object({ model: MODEL, ...fields }, options),
    engineBody: Type.Object({ model: IGNORED_MODEL, ...fields }, options),
  }
}

/** A number that may be left out. */
export function optionalNumber(options: object): TOptional<TUnsafe<number | null>> {
  return Type.Optional(ofType(['number', 'null'], options))
}

/** A whole number that may be left out. */
export function optionalInteger(options: object): TOptional<TUnsafe<number | null>> {
  return Type.Optional(ofType(['integer', 'null'], options))
}

/** The most tokens of an answer; -1 means no limit, as in other servers of this API. */
export function answerLength(description: string): TOptional<TUnsafe<number | null>> {
  return optionalInteger({ minimum: -1, description: `${description} -1 means the same.` })
}

/** A truth value that may be left out. */
export function optionalBoolean(options: object = {}): TOptional<TUnsafe<boolean | null>> {
  return Type.Optional(ofType(['boolean', 'null'], options))
}

/** A text that may be left out. */
export function optionalString(options: object = {}): TOptional<TUnsafe<string | null>> {
  return Type.Optional(ofType(['string', 'null'], options))
}

/** An object of any shape that may be left out. */
export function optionalObject(options: object = {}): TOptional<TUnsafe<object | null>> {
  return Type.Optional(ofType(['object', 'null'], options))
}

/** A list of any items that may be left out. */
export function optionalList(options: object = {}): TOptional<TUnsafe<unknown[] | null>> {
  return Type.Optional(ofType(['array', 'null'], options))
}

/** One of some words, which may be left out. */
export function optionalEnum<const Values extends string[]>(
  values: readonly [...Values],
  options: object = {},
): TOptional<TUnsafe<Values[number] | null>> {
  return Type.Optional(nullable(choice(values, options)))
}

/**
 * A parameter of the API that no supported model implements: only its default, null, is accepted.
 */
export function unsupported(): TOptional<TUnsafe<null>> {
  return Type.Optional(ofType(['null'], { description: 'Not supported.' }))
}

/** A parameter that supports only these values, which request the behaviour without it. */
export function fixed<const Values extends (string | number | boolean)[]>(
  values: readonly [...Values],
): TOptional<TUnsafe<Values[number] | null>> {
  return Type.Optional(
    Type.Unsafe({
      type: [typeof values[0], 'null'],
      enum: [...values, null],
      description: 'Nothing else is supported.',
    }),
  )
}

/**
 * A parameter without effect. It is accepted, and reported as ignored unless its value is one of
 * `usual`, which request the behaviour that applies anyway.
 */
export function ineffective(schema: object, usual: readonly unknown[] = []): TOptional<TUnknown> {
  return Type.Optional(
    Type.Unknown({
      description: 'Accepted and ignored; the answer reports this.',
      ...schema,
      [IGNORED_EXCEPT]: usual,
    }),
  )
}

/** A condition on a body: it has `name` of this type, unless it has one of `others`. */
export function requiredUnless(
  name: string,
  type: string | readonly string[],
  others: readonly string[],
): object {
  return {
    if: { properties: Object.fromEntries(others.map((other) => [other, { type: 'null' }])) },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
    then: { required: [name], properties: { [name]: { type } } },
  }
}

/** 400: the type of a field allows the value, but its meaning does not. */
export function invalidValue(param: string, reason: string): ServiceError {
  return failure.invalidRequest(`Invalid value for '${param}': ${reason}`, {
    param,
    code: 'invalid_value',
  })
}

/** 400: a field is missing that other fields require. */
export function missingParameter(param: string): ServiceError {
  return failure.invalidRequest(`Missing required parameter: '${param}'.`, {
    param,
    code: 'missing_required_parameter',
  })
}
