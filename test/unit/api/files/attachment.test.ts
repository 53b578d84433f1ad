import { expect, it } from 'vitest'

import { asAttachment } from '#api/files/routes.ts'

it.each([
  ['a b.txt', 'a b.txt', 'a%20b.txt'],
  ["d'été (100%).txt", "d'_t_ (100_).txt", 'd%27%C3%A9t%C3%A9%20%28100%25%29.txt'],
  ['photo\u202egpj.exe', 'photo_gpj.exe', 'photo_gpj.exe'],
  ['\u2067a\u2069.txt', '_a_.txt', '_a_.txt'],
  ['a"b\\c\r\n*', 'a_b_c__*', 'a%22b%5Cc%0D%0A%2A'],
])('a file %j is saved under its own name', (filename, plain, exact) => {
  expect(asAttachment(filename)).toBe(`attachment; filename="${plain}"; filename*=UTF-8''${exact}`)
})
