import { describe, expect, it } from 'vitest'

import { FormDigest } from '#api/v1/form-digest.ts'

function digestOf(boundary: string, content: string, step: number): string | undefined {
  const digest = new FormDigest(boundary)
  const body = Buffer.from(`--${boundary}\r\n${content}\r\n--${boundary}--\r\n`)
  for (let at = 0; at < body.length; at += step) digest.update(body.subarray(at, at + step))
  digest.end()
  return digest.value
}

describe('the digest of a form', () => {
  const expected = digestOf('one', 'name="a"\r\n\r\nhello', 1000)

  it.each([1, 2, 3, 5, 7, 1000])(
    'is the same in pieces of %i bytes, under any boundary',
    (step) => {
      expect(digestOf('one', 'name="a"\r\n\r\nhello', step)).toBe(expected)
      expect(digestOf('another-that-is-longer', 'name="a"\r\n\r\nhello', step)).toBe(expected)
    },
  )

  it('differs for other content of the same length', () => {
    expect(digestOf('one', 'name="a"\r\n\r\nhallo', 3)).not.toBe(expected)
    expect(digestOf('one', 'name="b"\r\n\r\nhello', 3)).not.toBe(expected)
  })

  it('is not available before the form has ended', () => {
    const digest = new FormDigest('one')
    digest.update(Buffer.from('--one\r\n'))
    expect(digest.value).toBe(undefined)
  })
})
