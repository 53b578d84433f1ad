import { describe, expect, it } from 'vitest'

import { isAuthorizedAddress, parseEmail, parsePhone } from '#api/auth/users/contact.ts'

describe('parseEmail', () => {
  const GOOD = {
    'Ada@Example.COM': 'ada@example.com',
    "o'hara+x@a-b.co": "o'hara+x@a-b.co",
    'a@localhost': 'a@localhost',
  }
  for (const [text, email] of Object.entries(GOOD)) {
    it(`reads ${text} as ${email}`, () => expect(parseEmail(text)).toBe(email))
  }

  const long = `${'a'.repeat(251)}@b.co`
  for (const text of [
    '',
    'a',
    'a@',
    '@b',
    'a b@c',
    'a@b c',
    'a@b_c',
    'ä@b.c',
    '\u212a@b.c',
    'a@b.c\n',
    long,
  ]) {
    it(`refuses ${JSON.stringify(text.slice(0, 20))}`, () => {
      expect(() => parseEmail(text)).toThrowError(/email/)
    })
  }
})

describe('parsePhone', () => {
  for (const text of ['+41 79 123 45 67', '41791234567', '+41791234567']) {
    it(`accepts ${text}`, () => expect(parsePhone(text)).toBe('41791234567'))
  }
  for (const text of ['', '+', '0791234567', '+41-79', '++41791234567', '1'.repeat(16), '1']) {
    it(`refuses ${JSON.stringify(text)}`, () => {
      expect(() => parsePhone(text)).toThrowError('Invalid phone number format (E.164 required)')
    })
  }
})

it('an authorized address is authorized with any label, and the list may be empty', () => {
  expect(isAuthorizedAddress('a+b@c.d', ['A@c.d'])).toBe(true)
  expect(isAuthorizedAddress('b@c.d', ['a@c.d'])).toBe(false)
  expect(isAuthorizedAddress('b@c.d', [])).toBe(true)
})
