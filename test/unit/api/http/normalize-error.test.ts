import { expect, it } from 'vitest'

import { isBug, normalizeError } from '#api/http/normalize-error.ts'
import { CancelledError, failure, INTERNAL_MESSAGE } from '#shared/errors.ts'

const coded = (code: string, message = 'driver text') => Object.assign(new Error(message), { code })

// As pg, pg-pool, ioredis and Redis word them.
const POOL_IS_FULL = 'timeout exceeded when trying to connect'
const CLOSED = 'Client was closed and is not queryable'
const ASKED_IN_VAIN = 'Reached the max retries per request limit (which is 1). Refer to the docs.'
const REPLICA = "READONLY You can't write against a read only replica."
const FULL = "OOM command not allowed when used memory > 'maxmemory'."

it.each([
  ['an expected failure', failure.notFound('gone'), 'notFound'],
  ['a large body', coded('FST_ERR_CTP_BODY_TOO_LARGE'), 'tooLarge'],
  ['broken JSON', coded('FST_ERR_CTP_INVALID_JSON_BODY'), 'invalidRequest'],
  ['a wrong content type', coded('FST_ERR_CTP_INVALID_MEDIA_TYPE'), 'unsupportedMediaType'],
  ['a refused connection', coded('ECONNREFUSED'), 'overloaded'],
  ['a database that shuts down', coded('57P01'), 'overloaded'],
  ['a database that refuses the password', coded('28P01'), 'overloaded'],
  ['a Redis that refuses the password', new Error('WRONGPASS invalid username-'), 'overloaded'],
  ['a Redis whose disk is full', new Error('MISCONF Redis is configured to save'), 'overloaded'],
  [
    'a wrapped lost connection',
    new Error('query failed', { cause: new Error('Connection terminated unexpectedly') }),
    'overloaded',
  ],
  ['a deadlock', new Error('query failed', { cause: coded('40P01') }), 'overloaded'],
  ['a lock that is not to be had', coded('55P03'), 'overloaded'],
  ['a statement beyond its time', coded('57014'), 'deadline'],
  ['a pool without a free connection', new Error(POOL_IS_FULL), 'overloaded'],
  ['a database client that was closed', new Error(CLOSED), 'overloaded'],
  ['a Redis that does not answer in time', new Error('Command timed out'), 'overloaded'],
  ['a Redis that was asked again in vain', new Error(ASKED_IN_VAIN), 'overloaded'],
  ['a Redis that has become a replica', new Error(REPLICA), 'overloaded'],
  ['a Redis without memory', new Error(FULL), 'overloaded'],
  ['a client that left', new CancelledError(), 'invalidRequest'],
  ['a bug', new TypeError('x is undefined'), 'internal'],
  ['nothing', undefined, 'internal'],
])('turns %s into its kind', (_case, thrown, kind) => {
  expect(normalizeError(thrown).kind).toBe(kind)
})

it('never shows the text of a bug, and reports it as one', () => {
  const error = normalizeError(new TypeError('secret path'))
  expect(error.message).toBe(INTERNAL_MESSAGE)
  expect(isBug(error)).toBe(true)
  expect(isBug(failure.notFound('gone'))).toBe(false)
})
