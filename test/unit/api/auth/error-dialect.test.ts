import { expect, it } from 'vitest'

import { presentAuthError } from '#api/auth/error-dialect.ts'
import { authFailure, OAuthError, WeakPasswordError } from '#api/auth/errors.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

const present = (error: ServiceError, apiVersion?: string) =>
  presentAuthError(error, { apiVersion, requestId: 'req_1' })

const CASES: readonly (readonly [error: ServiceError, status: number, body: object])[] = [
  [
    authFailure('otp_expired'),
    403,
    { code: 403, error_code: 'otp_expired', msg: 'Token has expired or is invalid' },
  ],
  [
    new WeakPasswordError('Too short.', ['length']),
    422,
    {
      code: 422,
      error_code: 'weak_password',
      msg: 'Too short.',
      weak_password: { reasons: ['length'] },
    },
  ],
  [
    new OAuthError('invalid_request', 'refresh_token required'),
    400,
    {
      error: 'invalid_request',
      error_description: 'refresh_token required',
      code: 400,
      error_code: 'validation_failed',
      msg: 'refresh_token required',
    },
  ],
  [
    failure.internal('The server had an error', { cause: new Error('secret detail') }),
    500,
    {
      code: 500,
      error_code: 'unexpected_failure',
      msg: 'Unexpected failure, please check server logs for more information',
      error_id: 'req_1',
    },
  ],
  [
    failure.overloaded('A service is not available.', { code: 'service_unavailable' }),
    503,
    {
      code: 503,
      error_code: 'service_unavailable',
      msg: 'A service is not available.',
      error_id: 'req_1',
    },
  ],
]

for (const [error, status, body] of CASES) {
  it(`writes ${error.name} ${error.code ?? error.kind} with a numeric code by default`, () => {
    const answer = present(error)
    expect(answer.status).toBe(status)
    expect(answer.body).toEqual(body)
    expect(answer.headers).not.toHaveProperty('x-supabase-api-version')
  })
}

it('writes a textual code for clients of 2024 and later', () => {
  for (const version of ['2024-01-01', '2026-05-31']) {
    const answer = present(new WeakPasswordError('Too short.', ['length']), version)
    expect(answer.body).toEqual({
      code: 'weak_password',
      message: 'Too short.',
      weak_password: { reasons: ['length'] },
    })
    expect(answer.headers['x-supabase-api-version']).toBe('2024-01-01')
  }
})

it('treats versions that are not dates as the oldest', () => {
  for (const version of ['2023-12-31', '9999', '2024-99-99', 'x', '']) {
    expect(present(authFailure('otp_expired'), version).body.code).toBe(403)
  }
})

it('says when to retry', () => {
  const error = authFailure('over_request_rate_limit', { retryAfterSeconds: 4.2 })
  expect(present(error).headers['retry-after']).toBe('5')
})
