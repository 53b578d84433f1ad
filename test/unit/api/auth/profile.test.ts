import { describe, expect, it } from 'vitest'

import { oneEmail, ProviderReplyError, profileOfClaims } from '#api/auth/external/profile.ts'

describe('the address of a provider’s user', () => {
  const check = (name: string, email: string, isOne: boolean) =>
    it(`is ${isOne ? 'taken' : 'none'}: ${name}`, () => {
      const expected = isOne ? [{ email, isVerified: true, isPrimary: true }] : []
      expect(oneEmail(email, true)).toEqual(expected)
    })
  check('a plain one', 'Olga.O+label@Test.dev', true)
  check('letters of other scripts', 'ольга@пример.dev', true)
  check('the Kelvin sign, a k in lower case', '\u212Aate@test.dev', false)
  check('a capital with a dot, an i in lower case', '\u0130van@test.dev', false)
  check('no address', 'olga', false)
  check('two addresses in one', 'a@test.dev,b@test.dev', false)
  check('two hosts', 'a@b@test.dev', false)
  check('a header more', 'a@test.dev\r\nBcc: b@test.dev', false)
  check('blanks', ' a@test.dev', false)
  check('a zero byte', 'a\u0000@test.dev', false)
  check('half of a surrogate pair', 'a\ud83d@test.dev', false)
  check('one longer than any account can have', `${'a'.repeat(255)}@test.dev`, false)
})

describe('the profile of a provider’s user', () => {
  it('contains nothing that the database cannot store', () => {
    const claims = {
      sub: '1',
      iss: 'https://issuer.test',
      name: 'Olga \ud83d',
      picture: 'https://x.test/\u0000a.png',
      groups: [{ 'a\u0000': 'b\u0000' }, 1, null, true],
    }
    expect(profileOfClaims(claims, { keepsOthers: true }).metadata).toMatchObject({
      full_name: 'Olga \ufffd',
      picture: 'https://x.test/a.png',
      custom_claims: { groups: [{ a: 'b' }, 1, null, true] },
    })
  })

  it.each(['', 'a\u0000b', 'a\ud800', 'x'.repeat(600)])(
    'is nobody’s with the subject %j',
    (sub) => {
      expect(() => profileOfClaims({ sub })).toThrow(ProviderReplyError)
    },
  )
})
