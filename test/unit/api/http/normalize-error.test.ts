import { expect, it } from 'vitest'

import { isBug, normalizeError } from '#api/http/normalize-error.ts'
import { CancelledError, failure, INTERNAL_MESSAGE } from '#shared/errors.ts'

const coded = (code: string, message = 'driver text') => Object.assign(new Error(message), { code })

it.each([
  ['an expected failure', failure.notFound('gone'), 'notFound'],
  ['a large body', coded('FST_ERR_CTP_BODY_TOO_LARGE'), 'tooLarge'],
  ['broken JSON', coded('FST_ERR_CTP_INVALID_JSON_BODY'), 'invalidRequest'],
  ['a wrong content type', coded('FST_ERR_CTP_INVALID_MEDIA_TYPE'), 'unsupportedMediaType'],
  ['a refused connection', coded('ECONNREFUSED'), 'overloaded'],
  ['a database that shuts down', coded('57P01'), 'overloaded'],
  [
    'a wrapped lost connection',
    new Error('query failed', { cause: new Error('Connection terminated unexpectedly') }),
    'overloaded',
  ],
  ['a client that left', new CancelledError(), 'invalidRequest'],
  ['a bug', new TypeError('x is undefined'), 'internal'],
  ['nothing', undefined, 'internal'],
])('turns %s into its kind', (_case, thrown, kind) => {
  expect(normalizeError(thrown).kind).toBe(kind)
})

it('never shows the text of a bug, and says that it is one', () => {
  const error = normalizeError(new TypeError('secret path'))
  expect(error.message).toBe(INTERNAL_MESSAGE)
  expect(isBug(error)).toBe(true)
  expect(isBug(failure.notFound('gone'))).toBe(false)
})
