import { describe, expect, it } from 'vitest'

import {
  ERROR_KINDS,
  failure,
  fromWireError,
  INTERNAL_MESSAGE,
  ServiceError,
  toWireError,
} from '#shared/errors.ts'

describe('a failure', () => {
  it.each(Object.entries(ERROR_KINDS))('of kind %s carries its status', (kind, { status }) => {
    const error = failure[kind as keyof typeof ERROR_KINDS]('text')
    expect(error).toBeInstanceOf(ServiceError)
    expect(error.status).toBe(status)
  })

  it('is the same after it crosses the wire', () => {
    const error = failure.invalidRequest('too long', {
      code: 'context_length_exceeded',
      param: 'prompt',
    })
    const back = fromWireError(JSON.parse(JSON.stringify(toWireError(error))))
    expect(back).toMatchObject({
      kind: 'invalidRequest',
      message: 'too long',
      code: 'context_length_exceeded',
      param: 'prompt',
    })
  })

  it('can be stored with any text that it quotes', () => {
    const error = failure.invalidRequest('unknown \ud800', { param: 'a\0b' })
    expect(error).toMatchObject({ message: 'unknown \ufffd', param: 'ab' })
  })

  it('shortens what it quotes of a large request', () => {
    const error = failure.invalidRequest(`unknown type ${'😀'.repeat(1_000_000)}`, {
      param: `response_format.${'a'.repeat(1_000_000)}`,
    })
    expect(error.message).toMatch(/^unknown type 😀.*…$/u)
    expect(error.message.length).toBeLessThanOrEqual(4001)
    expect(error.message.isWellFormed()).toBe(true)
    expect(error.param?.length).toBe(501)
    expect(fromWireError(toWireError(error))).toEqual(error)
  })

  it('never sends its cause or an unknown message across the wire', () => {
    const known = toWireError(failure.upstream('mail failed', { cause: new Error('secret host') }))
    expect(JSON.stringify(known)).not.toContain('secret')
    expect(toWireError(new Error('secret host'))).toEqual({
      kind: 'internal',
      message: INTERNAL_MESSAGE,
    })
  })
})
