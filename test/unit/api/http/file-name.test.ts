import { expect, it } from 'vitest'

import { fileNameOf } from '#api/http/form.ts'

const word = (name: string) => `=?utf-8?B?${Buffer.from(name).toString('base64')}?=`

it.each([
  ['plain.txt', 'plain.txt'],
  ['ü"😀.txt', 'ü"😀.txt'],
  ['a %22b%22.txt', 'a "b".txt'],
  ['100%25 %20.txt', '100%25 %20.txt'],
  [word('ü.jsonl'), 'ü.jsonl'],
  // Its base64 has a slash.
  [word('ä?>ü.mp3'), 'ä?>ü.mp3'],
  [word('../ordner/ü.txt'), 'ü.txt'],
  ['=?UTF-8?b?w7w=?=', 'ü'],
  ['=?utf-8?B?not base64!?=', '=?utf-8?B?not base64!?='],
  ['=?utf-8?Q?=C3=BC?=', '=?utf-8?Q?=C3=BC?='],
  ['folder/../a.txt', 'a.txt'],
  ['C:\\folder\\a.txt', 'a.txt'],
  ['folder/..', ''],
  ['', ''],
])('%s is %s', (stated, name) => {
  expect(fileNameOf(stated)).toBe(name)
})
